// Package extdiff moves the texts of merge request diffs from the database to an object
// store, and restores them.
//
// The texts of a diff's files are concatenated in the order of the tree into the object
// merge_request_diffs/mr-<merge request>/diff-<diff>. The row of each file then has the
// offset and size in bytes instead of the text. Applications that read GitLab's tables
// can read such rows.
//
// Invariant: no text is lost. A move writes the object, reads it back, and compares its
// size and SHA-256. Then one transaction locks the rows, compares their versions with
// those that were read for the object, and deletes the texts. A crash leaves either the
// old rows and at most one object, which the next attempt replaces, or the new rows with
// a verified object. The type claim prevents two workers from changing one object.
//
// The entry points are Scheduler.Run, Engine.Move, Engine.Restore, Engine.Remove and
// Engine.Verify.
package extdiff
