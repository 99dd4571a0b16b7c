// Package doctor finds problems that prevent or delay Sexton's work, before a growing
// backlog shows them: server, settings, roles, clocks, notifications and workers. Its
// entry points are Examine, for one database, and ExamineWorkers.
//
//	Target ──► Examine ────────┐
//	Workers ─► ExamineWorkers ─┼─► Report: checks, and findings with severity and fix
//	components' own checks ────┘
//
// The invariant: nothing is changed. Checks run in READ ONLY transactions, and the one
// notification has its own channel.
//
// A check that finds a problem, or fails, does not prevent the others. Package operator
// examines all databases together.
package doctor
