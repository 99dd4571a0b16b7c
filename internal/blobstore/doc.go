// Package blobstore keeps objects in a folder or in a bucket of any S3-compatible service. Its entry point is Open, which chooses by the URL.
//
//	write ─► Put ─┬─► file:///folder     a file, synced and then renamed
//	              └─► s3://bucket        one request, or parts that a later Put can go on with
//
// It is made for objects that are the only copy of something. Its one invariant: an object is as before or as written, never in part, and
// once Put has returned it is whole and, in a folder, on disk.
//
// A write names the Version that it replaces. If two writers do not know each other, one of them fails with ErrChanged. A service that knows no
// conditions ignores the version.
//
// Buckets are used through the AWS SDK, the largest part of the program: it follows the service's clock. minio-go is 9 MB smaller, and each of its
// requests fails with RequestTimeTooSkewed where the clock of the worker is wrong by a quarter of an hour.
//
// Every error says which it is: an OutageError passes by itself, an AccessError needs an operator, any other is about the one object. Objects
// are streamed: memory does not depend on their size.
package blobstore
