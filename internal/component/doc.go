// Package component describes one family of jobs to the rest of the program. Its entry point is the type Component: what waits in the family's
// tables, what failed there, what keeps it from its work, and which rights it needs.
//
//	components.All ─► Component ─┬─ Backlog, Gauges ──► status, page, readiness, metrics
//	                             ├─ Failures ─────────► failures list and retry, page
//	                             ├─ Plan ─────────────► plan
//	                             ├─ Checks ───────────► doctor
//	                             └─ Grants ───────────► migrate grants
//
// Its one invariant: no reader knows a family by name. Each loops over the values, which package components holds.
//
// A deletion table is the table in which a family's work waits, such as the tombstones or the queue of users. ReadBacklog reads it by a function
// of the database, so that "sexton".backlog and the program cannot disagree.
package component
