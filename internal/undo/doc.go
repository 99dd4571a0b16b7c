// Package undo restores deletions from what sexton.undo keeps. Its entry points are
// Engine.List, Engine.Show, Engine.Restore and Engine.Forget.
//
//	DELETE of a parent ─► trigger ─► set of parents ──┐ origin of tombstones
//	                                                  ▼
//	                          batch on children ─► set of rows ──┐ origin, if they are parents themselves
//	                                                             ▼ …
//
// A set (kept.go) has the rows that one statement deleted or changed. A unit is one
// DELETE of parents with all sets that it caused, which their origins show. A batch cleans
// up after many parents, so one set may have rows of several units. A row belongs to a
// unit if it referred to a row of the unit.
//
// Restore (restore.go) runs one transaction per database under the leases of all queues.
// It inserts the deleted rows (put.go) and searches for the parents of all of them
// (check.go). If rows have no parent, it rolls back to a savepoint and begins again without
// them. It then sets changed rows to their former values, the newest change first. It
// leaves rows that a later deletion changed (later.go). Sets store which of their rows are
// restored.
//
// Invariant: Restore changes only rows of the deletion.
package undo
