// Package definitions reads loose foreign key definitions in GitLab's format. Its entry
// points are Load, for files, and Parse.
//
//	children:                      the child table
//	  - table: parents             the parent table
//	    column: parent_id          the child's column with the parent's key
//	    on_delete: async_delete
//
// A loose foreign key is such a reference without a constraint in the database. A
// Definition is one entry of the file.
//
// Invariant: Load returns the errors of all files together, each with its file and line,
// and also the valid definitions.
//
// The package reads no catalog. Package loosefk checks tables, types and partitions.
package definitions
