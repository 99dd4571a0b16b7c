// Package exampleapp is the reference application: its schema, its loose foreign key
// definitions and generated data. The demo and tests run on it. Its entry points are
// Schema, Definitions and Load.
//
//	sql/reference ─► Schema ─► empty tables ─► Load(rows) ─► data, with statistics and sequences as after a while of use
//
// Its one invariant: two loads of one size on one day are equal on any machine. Dates
// count back from the day, everything else comes from the rows' numbers.
//
// The SQL is in sql/reference; this package only reads and drives it.
package exampleapp
