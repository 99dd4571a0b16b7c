// Package loosefk deletes or changes the children of deleted parents asynchronously, as
// ON DELETE CASCADE and ON DELETE SET NULL do synchronously. Its entry points are
// Resolve, which binds definitions to tables, and Engine.Run, which processes tombstones.
//
//	DELETE of a parent row ─► tombstone (status 1) ─► children deleted or changed, tombstone removed
//	                                                    │  key stored in the table swept
//	                                                    ▼  until the transactions of that time have ended
//	                          tombstone (status 2) ─► recheck: children inserted late are deleted or changed
//
// A Reference is a bound definition. A leaf is a table with rows of a child: the child
// itself or one of its partitions. An edge is a reference on one leaf. The horizon of a
// database is a time at or after which all its open transactions began.
//
// Invariant: a tombstone is only removed in a transaction that finds no children of it in
// the parent's database, after those in other databases were deleted or changed. The
// exception is a key whose parent row exists again: its children are kept. A run can be
// killed at any point, and two can run at the same time: the fence lets only one commit.
package loosefk
