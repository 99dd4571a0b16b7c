package jobrun

import (
	"cmp"
	"time"

	"sexton/internal/batch"
)

// Observer receives every pass when it has ended, including skipped and failed ones.
// RunEnded must not block, and may be called concurrently.
type Observer interface {
	RunEnded(ended Ended)
}

// Ended is a pass that has ended.
type Ended struct {
	Kind     string
	Database string
	Outcome  Outcome
	// LeaseTaken reports that the pass was skipped because another holder has the lease.
	LeaseTaken bool
	// Duration includes taking and giving back the lease and writing the history.
	Duration time.Duration
	// Err is the error because of which the pass failed, or could not be recorded.
	Err error
	// Held is the reason why a pass with work to do changed nothing, or "".
	Held   string
	Counts Counts
	Faults []batch.FaultCounts
	// Latency is the latency of the result.
	Latency Histogram
}

// Counts are counts by the name of a metric and by the value of its table or reason
// label. The value is empty if the metric has neither label.
type Counts map[string]map[string]int64

// observe passes an ended pass to the observer. A pass that panicked has no outcome and
// counts as failed.
func (r *Runner) observe(report Report, result Result, duration time.Duration, err error) {
	if r.Observer == nil {
		return
	}
	r.Observer.RunEnded(Ended{
		Kind: report.Kind, Database: report.Database, Outcome: cmp.Or(report.Outcome, Failed),
		LeaseTaken: report.Holder != "",
		Duration:   duration, Err: err, Held: result.heldReason(), Counts: result.Counts, Faults: result.Faults,
		Latency: result.Latency,
	})
}
