// Package cleanup runs one pass of the cleanup after deleted parents. Work.Run runs the
// pass, and Work.Due returns the time until the next pass is due.
//
//	definitions ─► bind to tables ─► connect to the databases of children ─► loosefk.Engine.Run ─► statistics
//	                    ▲                                                         │
//	                    └─────────────────── Memory ◄─────────────────────────────┘
//
// A binding holds the parents and references to which definitions were resolved. Memory
// keeps the binding, the outages of other databases, and the learned sizes for the next
// pass of the process. A pass without Memory, as after a restart, only takes more time.
//
// Invariant: a binding is only used again if the last pass had no error. Otherwise the
// next pass binds the definitions again.
package cleanup
