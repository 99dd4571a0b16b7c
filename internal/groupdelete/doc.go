// Package groupdelete deletes due groups. Its entry points are Resolve, which reads the
// foreign keys from the catalog, and Engine.Run, which deletes one group in small
// transactions.
//
//	group ─► projects ─► sub-groups, each under its own lease ─► members, shares ─► other referencing rows ─► the group
//	                          └─ the same again                    all but the group by drain.Tree.Clear, children first
//
// The destruction of a group begins when the first run inserts the group's row in
// sexton.group_destructions. The lineage of a group is the list of groups from the run's
// group down to it.
//
// Invariant: a row is deleted only if no rows are below it, so statements do not start
// cascades. The foreign keys' own actions apply only to rows that were inserted between
// the statement's snapshot and its lock.
//
// A group or project that is moved out of the group during the run is kept. The run
// checks for moves every few batches, and again in the statement that deletes a group.
//
// A run keeps no state outside the database. It can be killed at any point, and the next
// run continues the destruction.
package groupdelete
