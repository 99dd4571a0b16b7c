// Package batch runs small write transactions under a lease, each in one round trip. Its
// entry points are Session.Run and, for errors, Judge. One pipeline has all statements of
// a transaction, and an error skips the later ones:
//
//	begin_batch ─► search_path ─► the caller's statements ─► COMMIT ─► RESET ALL
//
// The statements before those of the caller are the frame.
//
// Invariant: a transaction only commits if its lease is the current one. The function
// begin_batch compares the fencing token of the lease. It also sets timeouts, for this
// transaction only, so that no setting leaks through a transaction pooler.
//
// The caller's statements run under the search_path of the application's triggers. They
// must name functions, types and operators by schema. Only batches of Sexton's own
// statements (Limits.Own) use the pinned path and plain operators.
package batch
