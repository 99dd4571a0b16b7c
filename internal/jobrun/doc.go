// Package jobrun surrounds one pass of any job. Its entry point is Runner.Do.
//
//	lease ─► row in "sexton".runs ─► work, with its statistics on the way ─► row ended, log line, observer
//	  └► taken: the pass is skipped, which is an ordinary end and no failure
//
// A pass is one run of a job's work in one database, by a worker or in the foreground.
// Its row, its log lines and the metrics say the same.
//
// Its one invariant: an ended run's row has the statistics of its process, also if the
// run failed. The figures of a run whose process was killed are the last progress it
// recorded.
package jobrun
