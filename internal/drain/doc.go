// Package drain deletes or changes the rows that reference deleted parents, in small transactions.
//
//	Pass ── sessions ── next: a chunk of tombstones ── clear: the ladder ── finish, postpone or fail
//
// A Parent is a table whose rows were deleted. An Edge is one leaf table of one of its children. A chunk is a few tombstones
// of one parent that are cleaned up together. Its state is its tombstones, when it may go on, and why.
//
// A chunk is first tried directly: one REPEATABLE READ transaction changes the rows of all edges and removes the tombstones.
// All statements share a snapshot, so the rows of the snapshot are gone when the tombstones are. If that takes too long or
// meets a lock, rows are changed in pieces by row pointer, and the direct statement runs again for what is left.
//
// A row may also live until its edges are drained, as a user does. It is then a chunk of its own. The direct transaction first locks
// it, and the completion deletes it. Rows that cannot be moved because the target has an equal one are changed by a statement of
// their own before the move.
//
// Every statement checks in its own snapshot that the parent is gone, or still queued, and every transaction checks the fence of its lease.
// A pass may be killed anywhere: the next one finds the tombstones and the rows that are left.
//
// Read pass.go, queue.go, ladder.go, and then the statements in internal/drain/dml/edge_direct.go.
package drain
