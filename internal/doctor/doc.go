// Package doctor finds problems that prevent or delay Sexton's work: in the server, its
// settings, roles, clocks, notifications and workers. It finds them before a backlog
// grows. Its entry points are Examine, for one database, and ExamineWorkers.
//
//	Target ──► Examine ────────┐
//	Workers ─► ExamineWorkers ─┼─► Report: checks, and findings with severity and fix
//	components' own checks ────┘
//
// The invariant: checks change nothing. They run in READ ONLY transactions. The only
// notification that a check sends uses its own channel.
//
// If a check fails or finds a problem, the other checks still run. Package operator
// examines all databases together.
package doctor
