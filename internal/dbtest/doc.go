// Package dbtest gives tests a database of their own with Sexton's tables in it.
//
//	New, Reference, WithUsers, WithGroups ─► a copy of a template that all tests of a run share
//	Family ─► parents and children ─► Tracked, Keeping: the same with triggers on the parents
//	Victim, KillOnce, Gates, Killed ─► sessions, processes and servers that die at a point of their work
//
// Its one invariant: no test sees another's rows, as each database has one test and goes
// with it. Its entry points are New and Tracked.
package dbtest
