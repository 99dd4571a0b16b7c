// Package jobrun runs one pass of any job and records it. Its entry point is Runner.Do.
//
//	lease ─► row in "sexton".runs ─► work, which records progress ─► end of the row, log line, observer
//	  └► held by another process: the pass is skipped, which is not a failure
//
// A pass is one execution of a job in one database, by a worker or by a command in the
// foreground. The row, the log lines and the metrics of a pass contain the same figures.
//
// The invariant: the row of an ended run has the statistics of its process, even if the
// run failed. If the process was killed, the row has the last progress that the process
// recorded.
package jobrun
