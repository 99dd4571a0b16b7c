// Package diffsqlc has what sqlc generates of the statements in sql/queries/external_diffs, for package extdiff. Its entry point is New.
//
//	sql/queries/external_diffs/*.sql ──┐
//	sql/reference/schema.sql ──────────┼─► sqlc ─► *.sql.go, models.go
//	sql/migrations/external_diffs ─────┘
//
// It is apart from package dbsqlc because its statements are about the application's tables of diffs, which not every installation has.
//
// Its one invariant: no file here but this one is written by hand, and each is what sqlc makes of the SQL today.
package diffsqlc
