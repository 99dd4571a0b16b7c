// Package doctor looks for what will keep Sexton from its work, or slow it down, before a
// growing backlog shows it: server, settings, roles, clocks, notifications and workers.
// Its entry points are Examine, for one database, and ExamineWorkers.
//
//	Target ──► Examine ────────┐
//	Workers ─► ExamineWorkers ─┼─► Report: checks, and findings with severity and fix
//	components' own checks ────┘
//
// Its one invariant: nothing is changed. All reading happens in READ ONLY transactions,
// and the one notification goes over a channel of its own.
//
// A check that finds something, or fails, keeps none of the others from running. Package
// operator puts an examination of all databases together.
package doctor
