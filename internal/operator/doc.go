// Package operator reads the state of an installation for the commands, the page and the
// metrics. Its entry point is Read.
//
//	installation.Connections ─┐                ┌─► status
//	backlogs of components ───┼─► Reading ─────┤
//	runs, leases, workers ────┘                └─► page (PageSource)
//	                 the same parts ───────────► Gauges, Readiness, Failures, Plan, Examine (doctor)
//
// Its invariant: no reader contains the name of a component. What differs between
// components is in component.Component, so a new component appears in all readers.
//
// Reading changes nothing. RetryFailures, ChangeKept and the changes of the page write an
// audit record with the actor.
package operator
