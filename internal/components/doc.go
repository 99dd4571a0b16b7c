// Package components describes the families of jobs to the rest of the program: pending
// rows, failures, plans, doctor's checks, metrics and privileges. The entry points are
// Enabled, Backlogs, Plan and Grants.
//
//	loose_foreign_keys.go  ─┐                      ┌─ Backlog, Gauges ──► status, page, readiness, metrics
//	ghost_users.go          │                      ├─ Failures ─────────► failures list and retry, page
//	placeholder_users.go    ├─► all ─► Component ─┼─ Plan ─────────────► plan
//	adjourned_groups.go     │                      ├─ Checks ───────────► doctor
//	external_diffs.go      ─┘                      └─ Grants ───────────► migrate grants
//
// Invariant: no reader depends on a single family. Everything that readers need is in the
// family's Component, which has its own file. A new family adds a file and an entry in
// the list.
//
// A deletion table is the table with a family's pending rows, such as tombstones or the
// queue of users. ReadBacklog reads it by a function in the database, so that the view
// "sexton".backlog and the program always agree.
package components
