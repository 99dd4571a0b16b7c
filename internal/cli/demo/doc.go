// Package demo shows Sexton at work on a private Postgres. Its entry point is Command.
//
//	devpg ─► sample data ─► installation.Install ─► worker in the same process ─► Run: scenes, Display, Summary
//
// An application acts on sample data, a worker does the jobs that follow, and a Display
// shows both.
//
//	scene.act ─► the application's tables ─► triggers ─► queues ─► Site.Work, the worker
//	                                                      │
//	                                                      ▼
//	                                           State ─► Display ─► Summary
//
// There is a scene for each kind of job and one for undo. All of them run at the same
// time on the same data.
//
// Its one invariant: the counts of a scene share nothing with the engine. They are plain
// SQL, taken after everything is done.
package demo
