// Package undo takes deletions back: it lists what sexton.undo keeps, and puts rows back where they were. Its entry points are Engine.List,
// Engine.Show, Engine.Restore and Engine.Forget.
//
//	DELETE of a parent ─► trigger ─► set of parents ──┐ origin of tombstones
//	                                                  ▼
//	                          batch on children ─► set of rows ──┐ origin, where they are parents themselves
//	                                                             ▼ …
//
// A set holds the rows that one statement deleted or changed. A unit is one DELETE of parents with all that it caused: the set of parents, and the
// sets that lead to it by their origins. One set may have rows of several units, as a batch cleans up after many parents: rows belong to a unit
// if they referred to a row of it.
//
// Restore goes through the sets of a unit, parents before children, one transaction each under the fences of all queues. A mark per set says which
// rows are back, in the transaction that put them there. So it may be killed anywhere, and the next one goes on.
//
// Its one invariant: nothing that is there is changed. A row whose key or parent is not free any more is named and left.
package undo
