// Package undo restores deletions from what sexton.undo keeps. Its entry points are
// Engine.List, Engine.Show, Engine.Restore and Engine.Forget.
//
//	DELETE of a parent ─► trigger ─► set of parents ──┐ origin of tombstones
//	                                                  ▼
//	                          batch on children ─► set of rows ──┐ origin, if they are parents themselves
//	                                                             ▼ …
//
// A set (kept.go) has the rows that one statement deleted or changed. A unit is one
// DELETE of parents with all sets that lead to it by their origins. A batch cleans up
// after many parents, so that one set may have rows of several units: rows belong to a
// unit if they referred to a row of it.
//
// Restore (restore.go) runs one transaction per database under the leases of all queues.
// It inserts the deleted rows (put.go), looks up the parents of all of them (check.go),
// and rolls back to a savepoint and begins again without the rows that have none. It then
// gives changed rows their former values, the newest change first. Rows that a later
// deletion changed are left (later.go). Sets store which of their rows are restored.
//
// A row that is not one of the deletion's is never changed.
package undo
