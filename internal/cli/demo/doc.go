// Package demo runs Sexton on a private Postgres with sample data. Its entry point is
// Command.
//
//	devpg ─► sample data ─► installation.Install ─► worker in the same process ─► Run: scenes, Display, Summary
//
// An application changes the sample data, a worker runs the jobs that follow, and a
// Display shows the progress.
//
//	scene.act ─► the application's tables ─► triggers ─► queues ─► Site.Work, the worker
//	                                                      │
//	                                                      ▼
//	                                           State ─► Display ─► Summary
//
// There is a scene for each kind of job and one for undo. All scenes run at the same time
// on the same data.
//
// The invariant: the counts of a scene do not use Sexton's code. They are plain SQL
// queries that run after all jobs are done.
package demo
