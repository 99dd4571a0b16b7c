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
// Buckets are used through the AWS SDK, the largest part of the program: it corrects the
// worker's clock and finds credentials of profiles, SSO and roles. minio-go is smaller,
// but fails every request if the clock is wrong by 15 minutes.
//
// There are three kinds of errors: an OutageError is temporary, an AccessError needs an
// operator, and any other error concerns one object. Objects are streamed, so that memory
// does not depend on their size.
package blobstore
