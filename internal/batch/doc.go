// Package batch runs small write transactions under a lease, each in one round trip. Its
// entry point is Session.Run.
//
//	begin_batch ─► search_path ─► the caller's statements ─► COMMIT ─► RESET ALL      one pipeline: an error skips all later statements
//
// Invariant: a transaction only commits if its lease is the current one. It begins with
// the function begin_batch, which compares the fencing token of the lease. That function
// also sets timeouts and planner settings, for this transaction only, so that nothing
// leaks through a transaction pooler.
//
// The application's triggers then get their own search_path. A separate statement sets
// it, because the path of a function with a pinned path is reset when the function
// returns. It is kept until COMMIT, since deferred constraint triggers run there. So SQL
// in a batch must name functions, types and operators by schema. Batches of Sexton's own
// statements (Limits.Own) keep the pinned path and use plain operators.
//
// A batch that only reads (Limits.Reads) is READ ONLY. It compares the token without a
// lock: it commits nothing, and batches with the lock act on its result.
//
// Statements that are new to a connection are prepared inside their first transaction.
// Preparing waits for locks of other sessions too, so it must have the same timeouts.
// Through a transaction pooler nothing is prepared, since the next transaction may use
// another server session.
package batch
