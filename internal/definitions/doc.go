// Package definitions reads loose foreign key definitions in GitLab's format. Its entry
// points are Load, for files, and Parse.
//
//	children:                      the child table
//	  - table: parents             the parent table
//	    column: parent_id          the child's column with the parent's key
//	    on_delete: async_delete
//
// Each entry of the file is a Definition: a reference without a constraint in the
// database.
//
// Invariant: Load returns the errors of all files together, each with its file and line,
// and also the valid definitions.
//
// The package does not query databases. Package loosefk checks whether the tables exist
// and whether their columns have matching types.
package definitions
