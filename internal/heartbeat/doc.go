// Package heartbeat detects dead workers and gives back their jobs and leases within
// seconds. River's own rescuer would wait for an hour. The entry point is Heart.Run.
//
//	worker A ─► beat ─► "sexton".clients ◄─ Reclaim ◄─ worker B
//	                                            │ A silent for too long
//	                                            ▼
//	               in one transaction: its row removed, its jobs given back to River, its leases ended
//
// The invariant: declaring a living worker dead costs work, but never correctness. The
// fencing tokens prevent a worker from committing after it has lost its lease. All times
// are the server's, so clocks of machines need not agree.
package heartbeat
