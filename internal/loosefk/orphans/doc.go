// Package orphans finds children of deleted parents for which there is no tombstone, and
// inserts tombstones for them. Its entry point is Auditor.Audit.
//
//	the child's column, key by key ─► no parent? ─► no tombstone? ─► orphan: counted, and with repair a tombstone
//
// An orphan is a child without a parent and without a tombstone. The parent was deleted
// before the triggers were installed or by a change that fires no trigger, or an
// application inserted the child without a parent.
//
// Invariant: an audit inserts no tombstone for a key if one of its queries finds a parent
// with that key.
//
// An audit reads in short transactions and takes no lock that another session waits for.
// Only one audit that repairs runs at a time.
package orphans
