package jobrun

import (
	"cmp"
	"time"

	"sexton/internal/batch"
)

// Observer receives every ended pass, including skipped and failed passes. RunEnded must
// not block, and may be called concurrently.
type Observer interface {
	RunEnded(ended Ended)
}

// Ended describes an ended pass.
type Ended struct {
	Kind     string
	Database string
	Outcome  Outcome
	// LeaseTaken is true if the pass was skipped because another holder has the lease.
	LeaseTaken bool
	// Duration includes the time for acquiring and releasing the lease and for writing
	// the history.
	Duration time.Duration
	// Err is the error of a failed pass, or the error that prevented the record of its
	// end.
	Err error
	// Held is the reason for which a pass with pending work changed nothing, or "".
	Held   string
	Counts Counts
	Faults []batch.FaultCounts
	// Latency is the latency histogram of the result.
	Latency Histogram
}

// Counts maps the name of a metric to counts by the value of its table or reason label.
// The value is "" if the metric has neither label.
type Counts map[string]map[string]int64

// observe reports an ended pass to the observer. A pass that panicked has no outcome and
// is reported as failed.
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
