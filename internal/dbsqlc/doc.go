// Package dbsqlc has what sqlc generates of the statements in sql/queries: one method of
// Queries per statement, with its parameters and row as Go types. Its entry point is New;
// database.Database.Queries has it with the configured schemas.
//
//	sql/queries ───────┐
//	sql/migrations ────┼─► sqlc ─► *.sql.go, models.go
//	sql/reference ─────┘
//
// Its one invariant: only this file is written by hand; the others equal the output of
// sqlc for the SQL of today. To change a statement, edit the .sql file and generate
// again. Statements called Diff… are about the application's tables of diffs, which not
// every installation has.
package dbsqlc

// TombstoneParentsSQL is the text of TombstoneParents, for statements that batches send.
const TombstoneParentsSQL = tombstoneParents
