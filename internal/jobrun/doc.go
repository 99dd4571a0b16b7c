// Package jobrun runs one pass of any job and records it. Its entry point is Runner.Do.
//
//	lease ─► row in "sexton".runs ─► work, which records progress ─► end of the row, log line, observer
//	  └► held by another process: the pass is skipped, which is not a failure
//
// A pass is one run of a job's work in one database, by a worker or in the foreground.
// Its row, its log lines and the metrics have the same figures.
//
// Its invariant: an ended run's row has the statistics of its process, even if the run
// failed. If the process was killed, they are the last progress that it recorded.
package jobrun
