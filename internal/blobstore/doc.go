// Package blobstore stores objects in a folder or in a bucket of any S3-compatible
// service. Its entry point is Open, which selects by the URL.
//
//	write ─► Put ─┬─► file:///folder     a file, synced and then renamed
//	              └─► s3://bucket        one request, or a multipart upload
//
// The objects are the only copy of their content. The invariant: an object is as before
// or as written, never incomplete. When Put has returned, it is complete and, in a
// folder, on disk.
//
// A write names the Version that it replaces. If two writers write the same object, one
// of them fails with ErrChanged. A service that does not support conditional writes
// ignores the version.
//
// Buckets are used through the AWS SDK, the largest part of the program: it follows the
// service's clock. minio-go adds 2 MB to a program instead of 5, but with a worker's
// clock 15 minutes off every request fails with RequestTimeTooSkewed, and its PutObject
// sends no conditions for objects in parts.
//
// There are three kinds of errors: an OutageError ends by itself, an AccessError needs an
// operator, any other is about the one object. Objects are streamed: memory does not
// depend on their size.
package blobstore
