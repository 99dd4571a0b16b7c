package jobrun

import (
	"cmp"

	"sexton/internal/batch"
)

// Result is the result of a pass of any kind. The outcome of the pass is derived from the
// result.
type Result struct {
	// Stats is encoded as a JSON object into the run's row.
	Stats     any
	Changed   bool
	Processed int64
	Failed    int64
	Counts    Counts
	Faults    []batch.FaultCounts
	// Latency counts the finished items by their age. The statistics contain the same
	// histogram under LatencyKey.
	Latency Histogram

	// Skipped is the reason for which the pass did nothing. Reason is shown with the
	// outcome of a pass that is done.
	Skipped, Reason string
	// Over is true if the pass left due work to the next pass. Left is the reason.
	Over bool
	Left string
	// Stopped is true if due work is left because a stop of the pass was requested.
	Stopped bool
	// Idle is true if the pass changed nothing. Kinds that never wait for locks do not
	// set Idle.
	Idle bool
	// Waited is the name of the last lock or other obstacle for which the pass waited.
	Waited string
}

// outcome returns the outcome of the pass and its reason.
func (r Result) outcome() (Outcome, string) {
	switch {
	case r.Skipped != "":
		return Skipped, r.Skipped
	case r.Over && r.Left != "" && r.Waited != "":
		return OverLimit, r.Left + "; blocked by " + r.Waited
	case r.Over:
		return OverLimit, r.Left
	case r.Stopped:
		return OverLimit, "stopped before all work was done"
	}
	return Done, r.Reason
}

// heldReason returns the reason for which a pass with due work changed nothing, or "". A
// held pass does not count as a success.
func (r Result) heldReason() string {
	left := r.Over && !r.Stopped || r.Waited != ""
	switch {
	case !r.Idle || !left && len(r.Faults) == 0:
		return ""
	case r.Waited == "" && len(r.Faults) > 0:
		first := r.Faults[0]
		return batch.Fault{Table: first.Table, SQLState: first.SQLState, Message: first.Message}.Text()
	}
	return cmp.Or(r.Waited, "the time limit was reached before anything was done")
}
