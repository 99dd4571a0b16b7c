// Package loosefk cleans up the children of deleted parents. It does asynchronously what
// ON DELETE CASCADE and ON DELETE SET NULL do. Its entry points are Resolve and
// Engine.Run.
//
//	DELETE of a parent row ─► trigger ─► tombstone (status 1)
//	                                         │  Run: loaded in chunks
//	                                         ▼
//	              children deleted or changed ─► tombstone removed, key stored in swept
//	                                                 │  when all transactions of that time have ended
//	                                                 ▼
//	                                             marked tombstone (status 2, the recheck)
//	                                                 ├─► no children: removed, done
//	                                                 └─► children inserted late: deleted or changed,
//	                                                     tombstone removed, key stored in swept again
//
// A tombstone is the row that a trigger on the parent inserts for each deleted row.
// Resolve checks the definitions against the databases and binds them to their tables. A
// Reference is a bound definition. Engine.Run passes the parents and their references to
// package drain, which decides the order of the statements.
//
// A transaction that was open when the tombstone was removed can still insert a child. So
// the keys of removed tombstones are stored in the table swept and rechecked when no such
// transaction is open. The horizon of a database is the time before which no transaction
// is open there.
//
// Invariant: a tombstone is only removed in a transaction that finds none of its children
// left in that database, after those in other databases were deleted or changed. The
// exception is a key that the parent has again: its tombstone is removed and its children
// are kept. A run can be killed at any point, and two can run at the same time: the
// lease's fence lets only one of them commit.
//
// Sub-packages: cleanup runs a pass, plan shows what a pass would do, orphans finds
// children of deleted parents without a tombstone.
package loosefk
