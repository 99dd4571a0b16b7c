// Package blobstore stores objects in a folder or in a bucket of any S3-compatible
// service. The entry point is Open, which selects the kind of store by the URL.
//
// Invariant: an object is either unchanged or written completely, and never incomplete.
// When Put has returned, the object is complete and, in a folder, on disk. Objects may be
// the only copy of their content.
//
// A write names the Version that it replaces. If two writers write the same object, one
// of them fails with ErrChanged. A service without conditional writes ignores the
// version.
//
// There are three kinds of errors. An OutageError is temporary, an AccessError needs an
// operator, and any other error concerns one object. Objects are streamed, so memory does
// not depend on their size.
package blobstore
