// Package dbtest creates a database with Sexton's tables for each test.
//
//	New, Reference, WithUsers, WithGroups ─► a copy of a template that all tests of a run share
//	Family ─► SQL of parents and children ─► Tracked, TrackedWithUndo: with triggers
//	Victim, KillOnce, Gates, KillAtGate ─► sessions, processes and servers that are killed
//
// Invariant: no test sees the rows of another test, because each database belongs to one
// test and is dropped at its end. The entry points are New and Tracked.
package dbtest
