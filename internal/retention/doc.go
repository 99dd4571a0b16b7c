// Package retention deletes rows whose retention period has expired.
//
// A rule names a table, a column with a time, and how long rows are kept. Each pass
// computes the cutoff of a rule once, from the server's clock. A row is due if its column
// is less than the cutoff and it meets the conditions. A row with NULL is never due. A
// leaf is a partition that stores rows, or a table without partitions. The rows below a
// row are those that refer to it, directly or indirectly. A pass reads windows of due
// rows of a leaf in the order of the column, and deletes the rows of each window together
// with the rows below them.
//
// Invariant: a row is deleted only in the version in which a query found it due. A
// transaction that deletes rows below a due row also locks the due row and checks its
// version. If the application restores the row during a pass, the row and its remaining
// rows below are kept.
//
// A pass can be killed at any point, and the next pass finds the remaining rows. The
// table retention_rules stores only the results of the last pass, and the value after
// which the next pass continues if earlier rows could not be deleted.
//
// The entry points are Resolve and Engine.Run.
package retention
