// Package pace keeps long work small and polite. Its entry points are Under, which gives
// a run its time, and Run, which is asked between batches.
//
//	        ┌───────────────────────────────────┐
//	        ▼                                   │
//	Run.Await (others are behind?) ─► batch ─► Run.Breathe (the others' share)
//	                                    │ locked
//	                                    ▼
//	                                 Blocked: waits until the lock holder has ended
//
// Items.Each is the loop of runs with one item a transaction.
//
// Its one invariant: every wait ends at the run's end at the latest. The run ends early
// enough before its lease for the last batch to commit.
package pace
