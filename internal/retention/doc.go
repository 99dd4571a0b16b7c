// Package retention deletes rows whose retention period has expired. Its entry points are
// Resolve and Engine.Run.
//
//	rules ─► Resolve ─► Plan ─► Run ─► oldest due row of each leaf
//	                                        ▼
//	                      window of due rows, in the order of the column
//	                                        ▼
//	                      drain.Tree: rows below, then the rows of the window
//
// A rule names a table, a column with a time, and how long rows are kept. Each pass
// computes the cutoff of a rule once, from the server's clock. A row is due if its column
// is less than the cutoff and it meets the conditions. A row with NULL is never due.
//
// # Invariants
//
// A row is deleted only in the version in which a query found it due. Before rows below
// it are deleted, the same transaction locks the row and checks that version. If the
// application restores a row during a pass, that row is kept. Rows below it that are not
// yet deleted are kept too.
//
// A pass can be killed at any point. The next one finds the remaining rows. The table
// retention_rules stores only the results of the last pass, and the value after which the
// next pass continues if earlier rows could not be deleted.
//
// # Files
//
// rule.go builds the statements of a rule. resolve.go binds rules to tables. engine.go
// runs a pass. state.go stores its results. look.go reports to plan and doctor.
package retention
