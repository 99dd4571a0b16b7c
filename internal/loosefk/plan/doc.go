// Package plan foresees what passes over loose foreign keys would do now. Its entry points are Plan and MissingIndexes.
//
//	tombstones ─► keys of each parent ─► statements of the engine ─► EXPLAIN ─► access path, missing index
//	                                └──► children counted up to a cap ────────► Definition, Totals
//
// Its one invariant: it changes nothing. All of it happens in short READ ONLY transactions, bounded by Limits.
//
// The statements are the ones that passes send, made by the same Edge of package drain, so a plan shows what a pass would do. What goes wrong
// with a single table, such as a missing privilege, is a finding of its definition and ends nothing.
package plan
