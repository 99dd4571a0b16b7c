// Package batch runs small write transactions under a lease, each in one round trip. Its
// entry point is Session.Run.
//
//	begin_batch ─► search_path ─► the caller's statements ─► COMMIT ─► RESET ALL      one pipeline; the first error skips what is behind it
//
// Its one invariant: no transaction commits unless its lease is the current one. Every
// transaction begins with the function begin_batch, which compares the fencing token of
// the lease and sets timeouts and planner settings for the length of the transaction
// alone, so that nothing leaks through a transaction pooler.
//
// The application's triggers then get their own search_path back, in a statement of its
// own: what a function with a pinned path sets for itself ends with it. The path is kept
// up to COMMIT, where deferred constraint triggers run. So SQL in a batch must name
// functions, types and operators by schema. Batches of Sexton's own statements
// (Limits.Own) run under the pinned path, also through a transaction pooler if the role
// lacks the setting, and use plain operators.
//
// A batch that only looks is READ ONLY. It compares the token without a lock: it commits
// nothing, and its answer is acted on by batches that hold it. The first one of a pass
// may go with the statement that begins the lease (Ahead): in its transaction, behind the
// fence.
//
// Statements that are new to a connection are prepared inside their first transaction,
// since preparing one waits for the locks of other sessions as well and must be bound by
// the same timeouts. Where the connection's query mode does without prepared statements,
// as it must behind a transaction pooler, none are: the next transaction may be another
// server session's.
package batch
