// Package cleanup runs one pass of the clean-up after deleted parents. Its entry point is Work.Run; Work.Due is the predicate that wakes it.
//
//	definitions ─► bind to tables ─► connect to the databases of children ─► loosefk.Engine.Run ─► statistics
//	                    ▲                                                         │
//	                    └─────────────────── Memory ◄─────────────────────────────┘
//
// Memory keeps what the next pass of the process can use: the binding, the outages of other databases, and the position in each queue. Its loss
// costs time and nothing else.
//
// Its one invariant: a binding outlives its pass only if that had no error. Otherwise the next pass binds anew.
package cleanup
