// Package dml builds the statements that delete or change application rows, and reads
// from the catalog which statements a table needs. Package drain decides which statement
// runs when.
//
// For loose foreign keys and users, a Key is a column list of a parent, and an Edge is a
// column list of a child that refers to a Key. Methods of Edge, such as Direct, build the
// statements on the rows that refer to given Keys, for one leaf at a time. A leaf is a
// table without partitions, which may be a partition itself.
//
// For native foreign keys, Below returns tables (Table) with the keys that refer to them
// (Ref). A Window is some rows of one leaf. The statements on windows delete a tree of
// rows, children first. A row is below another if it refers to that row, directly or
// through further rows.
//
// Invariant: a statement decides by the keys and versions of rows in its own snapshot,
// never by what an earlier statement read.
package dml
