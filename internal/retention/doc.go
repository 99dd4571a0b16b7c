// Package retention deletes rows whose time is over. Its entry points are Resolve and
// Engine.Run.
//
//	rules ─► Resolve ─► Plan ─► Run ─► oldest due row of each leaf
//	                                        ▼
//	                      window of due rows, in the order of the column
//	                                        ▼
//	                      drain.Tree: rows below, then the rows of the window
//
// A rule names a table, a column with a time, and how long rows are kept. The cutoff of a
// rule is taken once per pass from the server's clock. A row is due if its column is less
// than the cutoff and it meets the conditions. Rows with NULL are never due.
//
// # Invariants
//
// A row is deleted only in the version in which a query found it due. Before rows below
// it are deleted, the same transaction locks the row and checks that version. A row that
// an application restores meanwhile is kept, with the rows below it that are left.
//
// A pass can be killed at any point: the next one finds the rows that are left. The table
// retention_rules only has results of the last pass, and the value after which the next
// pass continues if rows before it could not be deleted.
//
// # Files
//
// rule.go has the statements of a rule, resolve.go binds rules to tables, engine.go is a
// pass, state.go its results. look.go has what plan and doctor report.
package retention
