// Package orphans finds children of deleted parents for which there is no tombstone, and
// inserts tombstones for them. Its entry point is Auditor.Audit.
//
//	the child's column, key by key ─► no parent? ─► no tombstone? ─► orphan: counted, and with repair a tombstone
//
// An orphan is such a child. Its parent was deleted before the triggers were installed or
// by a change that fires no trigger, or an application inserted it without a parent.
//
// Invariant: a key that has a parent in any snapshot of the queries for it gets no
// tombstone.
//
// An audit reads in short transactions and takes no lock that another session waits for.
// Only one audit that repairs runs at a time.
package orphans
