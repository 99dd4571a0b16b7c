// Package cleanup runs one pass of the clean-up after deleted parents. Work.Run runs it,
// and Work.Due returns when the next one is due.
//
//	definitions ─► bind to tables ─► connect to the databases of children ─► loosefk.Engine.Run ─► statistics
//	                    ▲                                                         │
//	                    └─────────────────── Memory ◄─────────────────────────────┘
//
// A binding is the parents and references that definitions were resolved to. Memory keeps
// what the next pass of the process can use: the binding, the outages of other databases,
// and the learned sizes. Losing it only costs time.
//
// Invariant: a binding is only used again if the last pass had no error. Otherwise the
// next pass binds the definitions again.
package cleanup
