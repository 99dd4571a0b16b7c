// Package riverjobs adapts the jobs to River: a file for each kind, or for a pair of
// them, which begins with its arguments and its declaration, and one worker for all of
// them in kind.go. Its entry points are NewClient, Register and Jobs, the only list.
//
//	tick of a schedule (periodic.go) ─┐
//	wake-up by a commit (subscription.go) ────┼─► River's queue, one per kind ─► worker ─► jobrun: lease, row of the run ─► the kind's pass
//	SQL enqueue, another kind ────────┘                                                                               │
//	                                                                                       a domain package does the work
//
// A kind with a schedule has a pass per tick or wake-up, and goes on while something is
// due. A kind without one has a job per item, which another kind inserts, and goes on
// until the item is done.
//
// Its one invariant: a job says that there may be work, never which rows are left of it.
// That stands in the deletion tables, and each pass reads it anew.
package riverjobs
