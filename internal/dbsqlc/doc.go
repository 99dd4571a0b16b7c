// Package dbsqlc has what sqlc generates of the statements in sql/queries: one method of Queries per statement, with its parameters and row as
// Go types. Its entry point is New; database.Database.Queries has it with the configured schemas.
//
//	sql/queries/*.sql ─┐
//	                   ├─► sqlc ─► *.sql.go, models.go
//	sql/migrations ────┘
//
// Its one invariant: no file here but this one and texts.go is written by hand, and each is what sqlc makes of the SQL today. To change a
// statement, edit the .sql file and generate again. Package diffsqlc below has the statements about diffs.
package dbsqlc
