// Package migrate installs, compares and removes Sexton's own database objects. Its entry points are Up, Down, Status and Check.
//
//	sql/migrations ─────┐
//	River's migrations ─┼─► tables, versions, "sexton".objects (the registry)
//	sql/functions ──────┘
//
// Objects come in components, each with a version table of its own in Sexton's schema: base and, where enabled, loose_foreign_keys in every
// database; jobs, River's tables, ghost_users, placeholder_users, adjourned_groups and external_diffs in the jobs database.
//
// Its one invariant: each migration commits together with its version and its entries in the registry, so a crash at any point leaves a state
// from which Up and Down both go on. Down removes what the registry lists. One advisory lock per database keeps two of
// them apart.
//
// Functions are no migrations but code, installed anew after them where their text differs. So are the triggers on tracked tables and their
// functions, see package triggers. Grants and GrantRoles write the SQL for the roles.
package migrate
