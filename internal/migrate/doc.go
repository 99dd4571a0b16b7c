// Package migrate installs, compares and removes Sexton's own database objects. Its entry
// points are Up, Down, Status and Check.
//
//	sql/migrations ─────┐
//	sql/rows ───────────┼─► tables, functions and rows in the schema sexton and the tracked schema
//	sql/functions ──────┤
//	River's migrations ─┘
//
// Each object belongs to a component. The comment of the schema sexton has the version of
// each component, and Sexton's objects in the tracked schema have a comment that begins
// with "Sexton:". Comments are part of a schema dump, so Up recognizes the objects of a
// restored dump.
//
// The invariant is that every migration can be run again. An advisory lock per database
// excludes concurrent migrations. Package triggers installs the triggers on tracked
// tables.
package migrate
