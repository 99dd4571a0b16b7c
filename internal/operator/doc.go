// Package operator reads the state of an installation for everything that looks after it.
// Its entry point is Read.
//
//	installation.Connections ─┐                ┌─► status
//	components' backlogs ─────┼─► Reading ─────┤
//	runs, leases, workers ────┘                └─► page (PageSource)
//	                 the same parts ───────────► Gauges, Readiness, Failures, Plan, Examine (doctor)
//
// Its one invariant: no reader knows a family of jobs by name. What a family has to say
// comes from its component.Component, so a new family shows up in all of them.
//
// Reading changes nothing. RetryFailures and the buttons of the page do; each writes who
// asked for it into the audit trail.
package operator
