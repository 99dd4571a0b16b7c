// Package demo shows Sexton at work. Its entry point is Run: an application deletes parents and users at random, a worker does what follows, and
// a view shows both, until there is nothing left to do or the viewer has seen enough.
//
//	Scene.Act ─► the application's tables ─► triggers ─► queues ─► Site.Work, the worker
//	                                                      │
//	                                                      ▼
//	                                        State ─► View (Screen, Lines) ─► Summary
//
// There is a Scene per kind of job; all play at the same time on the same data.
//
// Its one invariant: a scene's Check shares nothing with the engine that it judges. It looks for mistakes by SQL of its own once everything is
// drained.
package demo
