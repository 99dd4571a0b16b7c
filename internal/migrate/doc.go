// Package migrate installs, compares and removes Sexton's own database objects. Its entry
// points are Up, Down, Status and Check.
//
//	sql/migrations ─────┐
//	sql/rows ───────────┼─► tables, functions and rows in the schema sexton and the tracked schema
//	sql/functions ──────┤
//	River's migrations ─┘
//
// Objects belong to components: base and, if enabled, loose_foreign_keys in every
// database; jobs, River's tables, ghost_users, placeholder_users, adjourned_groups and
// external_diffs in the jobs database.
//
// Everything in the schema sexton belongs to Sexton and to one role without login. The
// comment of the schema has the version of each component. Sexton's tables, columns and
// indexes in the tracked schema have a comment that begins with "Sexton:". Comments are
// part of a schema dump, so Up recognizes the objects of a restored dump.
//
// The invariant: every migration can be run again. Up runs the migrations of a component
// if the version is older than this program's or a table is missing. It replaces
// functions and adds missing rows each time. Everything except River's tables is one
// transaction. An advisory lock per database excludes concurrent migrations. Package
// triggers installs the triggers on tracked tables. Database.Grant compares the
// privileges of roles with Grants.
package migrate
