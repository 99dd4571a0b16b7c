// Package heartbeat detects dead workers and gives back what they held, so that they
// block other workers only for seconds. Its entry point is Heart.Run.
//
//	worker A ─► beat ─► "sexton".clients ◄─ Reclaim ◄─ worker B
//	                                            │ A silent for too long
//	                                            ▼
//	               in one transaction: its row removed, its jobs given back to River, its leases ended
//
// Each worker, and each pass in the foreground, writes the time into its row every few
// seconds. Without that, River's own rescuer would wait for an hour and block unique jobs
// for as long.
//
// Its invariant: declaring a living worker dead costs work, never correctness. That
// worker may have been stopped, or only its heartbeat failed. The fences let no holder
// commit after its lease has passed on.
//
// All times are the server's, so clocks of machines need not agree.
package heartbeat
