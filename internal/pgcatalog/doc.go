// Package pgcatalog reads from Postgres's catalogue what engines have to know of tables
// that are not their own. Its entry point is Read.
//
//	names ─► Named, InSchemas ─► OIDs ─► Read ─► Relation: columns, leaves (partitions with rows), indexes
//	                                  └► ForeignKeys
//	operator families ─► ReadOperators ─► Compare: how a column is compared with values of a key
//
// Its one invariant: what it reads does not depend on the session. Settled runs a look
// with a pinned search_path, so names are resolved and printed alike whatever the
// database and the role have set.
//
// It reads in a handful of statements however many tables there are, and waits for locks
// on the application's tables for a moment only.
package pgcatalog
