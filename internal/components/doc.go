// Package components describes the families of jobs to the rest of the program: what
// waits in the tables of a family, what failed there, what keeps it from its work, and
// which rights it needs. Its entry points are All and Enabled.
//
//	loose_foreign_keys.go  ─┐                      ┌─ Backlog, Gauges ──► status, page, readiness, metrics
//	ghost_users.go          │                      ├─ Failures ─────────► failures list and retry, page
//	placeholder_users.go    ├─► All ─► Component ─┼─ Plan ─────────────► plan
//	adjourned_groups.go     │                      ├─ Checks ───────────► doctor
//	external_diffs.go      ─┘                      └─ Grants ───────────► migrate grants
//
// Its one invariant: no reader knows a family by name. All that readers know of a family
// stands in its one file, as a Component. What the families share has files of its own:
// grants on the application's tables, and indexes that clean-ups miss.
//
// A deletion table is the table in which a family's work waits, such as the tombstones or
// the queue of users. ReadBacklog reads it by a function of the database, so that
// "sexton".backlog and the program cannot disagree.
//
// A new family is one more file and one more entry of the list.
package components
