// Package diffsqlc has what sqlc generates of the statements in sql/queries/external_diffs, for package extdiff. Its entry point is New.
//
//	sql/queries/external_diffs/*.sql ──┐
//	sql/reference/schema.sql ──────────┼─► sqlc ─► *.sql.go, models.go
//	sql/migrations/external_diffs ─────┘
//
// It is apart from package dbsqlc because its statements are about the application's tables of diffs, which not every installation has.
//
// Its one invariant: only this file is written by hand; the others equal the output of sqlc for the SQL of today.
package diffsqlc
