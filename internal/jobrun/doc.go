// Package jobrun surrounds one pass of any job. Its entry point is Runner.Do.
//
//	lease ─► row in "sexton".runs ─► work, with its statistics on the way ─► counts of the batches ─► row ended, log line, observer
//	  └► taken: the pass is skipped, which is an ordinary end and no failure
//
// A pass is one run of a job's work in one database, by a worker or in the foreground. Its row, its log lines and the metrics say the same.
//
// Its one invariant: what a batch has committed is counted once, even if the process is killed before the pass ends. The batches count in the
// database, and a later pass settles what one before it has left.
package jobrun
