package jobrun

import (
	"cmp"
	"time"

	"sexton/internal/batch"
)

// Observer is told of every pass when it has ended, of skipped and failed ones too. It
// must not block, and may be called for several passes at a time.
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
	// Err is why the pass failed, or could not be recorded.
	Err error
	// Held is that of the result.
	Held   string
	Counts Counts
	Faults []batch.FaultCounts
	// Latency is that of the result.
	Latency Histogram
}

// Counts are counts by the name of a metric and by the value of its table or reason
// label. The value is empty if the metric has neither label.
type Counts map[string]map[string]int64

// observe also hears of a pass that panicked, which has no outcome.
func (r *Runner) observe(report Report, result Result, duration time.Duration, err error) {
	if r.Observer == nil {
		return
	}
	r.Observer.RunEnded(Ended{
		Kind: report.Kind, Database: report.Database, Outcome: cmp.Or(report.Outcome, Failed),
		LeaseTaken: report.Holder != "",
		Duration:   duration, Err: err, Held: result.held(), Counts: result.Counts, Faults: result.Faults,
		Latency: result.Latency,
	})
}
