// Package definitions reads loose foreign key definitions in GitLab's format. Its entry
// points are Load, for files, and Parse.
//
//	children:                      the child table
//	  - table: parents             the parent whose deleted rows it follows
//	    column: parent_id          the child's column with the parent's key
//	    on_delete: async_delete
//
// A loose foreign key is such a reference without a constraint of the database. A
// Definition is one entry of the file.
//
// Its one invariant: everything that is wrong in all files is reported at once, each with
// its file and line, and the sound definitions come beside the error.
//
// It knows nothing of a database: what only a catalogue can tell (missing tables, types,
// partitions) is checked by package loosefk.
package definitions
