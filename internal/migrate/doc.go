// Package migrate installs, compares and removes Sexton's own database objects. Its entry
// points are Up, Down, Status and Check.
//
//	sql/migrations ─────┐
//	sql/rows ───────────┼─► tables, functions and rows in the schema sexton and the tracked schema
//	sql/functions ──────┤
//	River's migrations ─┘
//
// Objects come in components: base and, if enabled, loose_foreign_keys in every database;
// jobs, River's tables, ghost_users, placeholder_users, adjourned_groups and
// external_diffs in the jobs database.
//
// Everything in the schema sexton belongs to Sexton and to one role without login. The
// comment of the schema has the version of each component. Tables, columns and indexes of
// Sexton's in the tracked schema have a comment that begins with "Sexton:". Comments are
// part of a schema dump, so Up recognizes what such a dump has created.
//
// Each migration can be run again. Up runs those of a component if the version is older
// than this program's or a table is missing. It replaces functions and adds missing rows
// each time. Everything but River's tables is one transaction. An advisory lock per
// database keeps two migrations apart. Package triggers installs the triggers on tracked
// tables. Database.Grant compares the rights of roles with Grants.
package migrate
