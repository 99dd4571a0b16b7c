// Package groupdelete ends groups whose time has come. Its entry points are Resolve,
// which reads from the catalogue what hangs below what, and Engine.Run, which takes one
// group down in small transactions.
//
//	group ─► projects ─► sub-groups, each under its own lease ─► members, shares ─► what else refers to it ─► the group itself
//	                          └─ the same again                         each but the last by drain.Run.Clear, children first
//
// Its one invariant: a row is deleted only once nothing is below it, by a look or as its
// transaction has deleted it all, so no statement sets off a cascade. What the keys' own
// actions still find are rows that came in between a statement's snapshot and its lock.
//
// What is moved out of the group on the way escapes: the run looks for that every few
// batches, and the last statement on each group again.
//
// Everything that a run knows it has read from the database: killed anywhere, the next
// one finds what is left and goes on.
package groupdelete
