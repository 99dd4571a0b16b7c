// Package exampleapp is the reference application: its schema, its loose foreign key
// definitions and generated data. The demo and tests run on it. Its entry points are
// Schema, Definitions and Load.
//
//	sql/reference ─► Schema ─► empty tables ─► Load(rows) ─► data, statistics, sequences
//
// Invariant: two loads with the same number of rows on the same day are equal on any
// machine. Dates count back from the day, and all other values depend on the rows'
// numbers.
//
// The SQL is in sql/reference. This package reads and runs it.
package exampleapp
