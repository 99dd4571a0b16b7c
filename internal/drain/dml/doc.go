// Package dml builds the statements that delete or change application rows, and finds out
// from the catalogue which statements a table needs.
//
// An Edge is one column list that references a Key. It builds the statements on the rows of
// Keys, for one leaf table at a time. Keep adds what undo keeps of the rows. Lacking returns
// the privileges that edges miss.
//
// Read returns the tables below a table along native foreign keys (Table, Ref). Window and
// the statements on it delete a tree of rows, children first. Expand counts such a tree.
//
// Invariant: a statement decides by the keys and versions of rows in its own snapshot, never
// by what an earlier statement read. Package drain decides which statement runs when.
package dml
