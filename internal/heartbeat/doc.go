// Package heartbeat tells living workers from dead ones, so that a dead one blocks
// nothing for long. Its entry point is Heart.Run.
//
//	worker A ─► beat ─► "sexton".clients ◄─ Reclaim ◄─ worker B
//	                                            │ A silent for too long
//	                                            ▼
//	               in one transaction: its row removed, its jobs given back to River, its leases ended
//
// Each worker, and each pass in the foreground, writes the time into its row every few
// seconds. River's own rescuer would wait for an hour, and its unique jobs would be
// blocked as long.
//
// Its one invariant: taking a living worker for dead costs work, never correctness. A
// worker may have stood still, or only its heartbeat did not get through; the fences let
// no holder commit whose lease has passed on.
//
// All times are the server's, so clocks of machines need not agree.
package heartbeat
