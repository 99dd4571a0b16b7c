// Package plan shows what passes over loose foreign keys would do now. Its entry points
// are Plan and MissingIndexes.
//
//	tombstones ─► keys of each parent ─► statements of the engine ─► EXPLAIN ─► access path, missing index
//	                                └──► children counted up to a cap ────────► Definition, Totals
//
// The statements are the same as in passes: dml.Edge builds both. An error on a single
// table, such as a missing privilege, is a finding of its definition. Other definitions
// are still planned.
//
// Invariant: the package changes nothing. It only uses short READ ONLY transactions with
// the timeouts of Limits.
package plan
