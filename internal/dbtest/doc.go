// Package dbtest gives tests a database of their own with Sexton's tables in it.
//
//	New, Reference, WithUsers, WithGroups ─► a copy of a template that all tests of a run share
//	Family ─► parents and children ─► Tracked, Keeping: the same with triggers on the parents
//	Victim, KillOnce, Gates, Killed ─► sessions, processes and servers that are killed at a chosen point
//
// Its one invariant: no test sees the rows of another, because each database belongs to one
// test and is dropped with it. Its entry points are New and Tracked.
package dbtest
