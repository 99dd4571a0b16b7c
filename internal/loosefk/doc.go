// Package loosefk cleans up the children of deleted parents: the asynchronous counterpart of ON DELETE CASCADE and ON DELETE SET NULL. Its
// entry points are Resolve and Engine.Run.
//
//	DELETE of a parent ─► trigger ─► tombstone
//	                                    │  Run: loaded with others of its parent, worked off together
//	                                    ▼
//	                   children deleted or changed, batch by batch ─► tombstone removed with the last of them
//	                                                                      │  until all transactions of that time have ended
//	                                                                      ▼
//	                                                   recheck ─► no children: done
//	                                                            └► children that came late: a tombstone again
//
// To recheck is to take the second look at the children of removed tombstones, which wait in the table swept. A horizon is the time before which
// no transaction is open.
//
// A tombstone is the row that a trigger on the parent leaves per deleted row. Resolve checks the definitions against the databases and binds
// them to their tables.
//
// Its one invariant: a tombstone goes only in a transaction that finds none of its children left in that database, after those in others
// are gone. So a run may be killed anywhere, and two may run at once: the lease's fence lets one of them commit.
//
// Packages below: cleanup runs a pass, plan foresees one, orphans finds children that no tombstone leads to.
package loosefk
