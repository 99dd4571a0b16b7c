// Package riverjobs connects the job families to River. Each kind, or pair of kinds, has
// a file with its arguments and its declaration. kind.go contains the worker of all
// kinds. The entry points are NewClient, Register and Jobs.
//
//	tick of a schedule (periodic.go) ──────┐
//	wake-up by a commit (subscription.go) ─┼─► River's queue, one per kind ─► worker ─► jobrun ─► pass of the kind
//	SQL enqueue, another kind ─────────────┘                                            (lease)      (domain package)
//
// A kind with a schedule runs a pass per tick or wake-up, and continues while rows are
// due. A kind without a schedule has one job per item, which another kind inserts.
//
// The invariant: a job only means that there may be work. Each pass reads the pending
// rows from the deletion tables.
package riverjobs
