// Package undo restores deletions from the rows that are saved in the table sexton.undo.
//
// A set holds the rows that one statement deleted or changed. A unit is one DELETE of
// parent rows with all sets that it caused. The origins of a set are the IDs of the sets
// that caused it. A batch's own set holds the rows of the batch's statement. Triggers
// save the rows that cascades delete during the batch in further sets with the same ID. A
// batch cleans up after many parents, so a set may hold rows of several units. A row
// belongs to a unit if it referred to a row of the unit.
//
// Restore runs one transaction per database under the leases of all queues. It inserts
// deleted rows, and sets changed rows to their former values, the newest change first. It
// does not restore rows without a parent and rows that a later deletion changed. Sets
// store which of their rows are restored. Triggers are silenced if
// session_replication_role is replica: the server then runs no triggers of the
// application and checks no foreign keys.
//
// Invariant: Restore changes only rows of the deletion.
//
// The entry points are Engine.List, Engine.Show, Engine.Restore and Engine.Forget.
package undo
