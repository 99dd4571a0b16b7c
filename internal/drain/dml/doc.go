// Package dml builds the statements that delete or change application rows. It also reads
// from the catalog which statements a table needs.
//
// # Loose foreign keys
//
// A Key is the column list of a parent that edges refer to. An Edge is one column list of
// a child that refers to a Key. It builds the statements on the rows that refer to given
// Keys, for one leaf table at a time:
//
//   - Direct changes all rows of the keys in one statement.
//   - Window and Piece change a few rows at a time, by row pointer (ctid).
//   - CleanStatement changes a few rows that no other session has locked.
//   - ExactStatement changes row versions that were read before.
//
// Keep adds to these statements what undo keeps of the rows. Lacking returns the
// privileges that the role lacks for them.
//
// # Native foreign keys
//
// A Catalog has all foreign keys of a database. A Table has the keys that refer to it
// (Ref), and with them the tables below it. A Window is some rows of one leaf, and the
// statements on it delete a tree of rows, children first. Window.Expand finds all rows
// of such a tree.
//
// # Invariant
//
// A statement decides by the keys and versions of rows in its own snapshot, never by what
// an earlier statement read. Package drain decides which statement runs when.
package dml
