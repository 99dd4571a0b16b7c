// Package orphans finds children of gone parents that no tombstone leads to, and leaves tombstones for them. Its entry point is Auditor.Audit.
//
//	the child's column, key by key ─► no parent? ─► no tombstone? ─► orphan: counted, and with repair a tombstone
//
// An orphan comes from before the tracking began, from a change that fires no trigger, or from an application that inserts a child of a missing
// parent.
//
// Its one invariant: a key that has a parent in any snapshot of a look gets no tombstone.
//
// An audit reads in short transactions and takes no lock that another session waits for. Audits that repair go one at a time.
package orphans
