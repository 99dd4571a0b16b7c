// Package pgcatalog reads tables, keys, indexes and operators from Postgres's catalog.
// Its entry points are Read, ForeignKeys and ReadOperators.
//
//	names ─► Named, InSchemas ─► OIDs ─► Read ─► Relation: columns, leaves (partitions with rows), indexes
//	                                  └► ForeignKeys
//	operator families ─► ReadOperators ─► Compare: how a column is compared with values of a key
//
// Its invariant is that the results do not depend on the session. Settled pins the
// search_path, so names are resolved and printed in the same way under any settings of
// the database and the role.
//
// The number of statements does not depend on the number of tables. Statements wait for
// locks on the application's tables for at most 100 ms.
package pgcatalog
