// Package components is the list of the families of jobs. Its entry points are All and Enabled.
//
//	loose_foreign_keys.go  ─┐
//	ghost_users.go          │
//	placeholder_users.go    ├─► all ─► Backlogs, Gauges, Plan, Grants, …
//	adjourned_groups.go     │
//	external_diffs.go      ─┘
//
// Its one invariant: all that readers know of a family stands in its one file, as a component.Component. What the families share is beside
// them: grants on the application's tables, and indexes that clean-ups miss.
//
// A new family is one more file and one more entry of the list.
package components
