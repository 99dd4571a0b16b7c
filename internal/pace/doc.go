// Package pace limits how much of a server's time the work of a run takes. Its entry
// points are Under, which limits the time of a run, and Run, whose methods are called
// between batches.
//
//	        ┌──────────────────────────────────────────────────┐
//	        ▼                                                  │
//	Run.Await (waits while a replica lags) ─► batch ─► Run.PauseAfterBatch (leaves time to other sessions)
//	                                            │ lock timeout
//	                                            ▼
//	                                         LockBackoff
//
// ServerThrottle queries the servers for replicas, other sessions and lock holders.
// Items.Each is the loop of runs that process one item per transaction.
//
// Invariant: no pause is longer than the run. A run ends early enough for its last batch
// to commit before the lease expires.
package pace
