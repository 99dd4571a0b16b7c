package jobrun

import (
	"cmp"

	"sexton/internal/batch"
)

// Result is the result of a pass of any kind. Its outcome is derived from it.
type Result struct {
	// Stats becomes a JSON object.
	Stats     any
	Changed   bool
	Processed int64
	Failed    int64
	Counts    Counts
	Faults    []batch.FaultCounts
	// Latency counts the finished items by their age. The statistics have it under
	// LatencyKey.
	Latency Histogram

	// Skipped is the reason why the pass did nothing. Reason explains the outcome of a
	// pass that is done.
	Skipped, Reason string
	// Over reports that the pass left due work to the next pass. Left is the reason.
	Over bool
	Left string
	// Stopped reports that due work is left because the pass was asked to stop.
	Stopped bool
	// Idle reports that a pass changed nothing. Kinds that never wait for locks do not
	// set it.
	Idle bool
	// Waited names the lock or other obstacle that the pass last waited for.
	Waited string
}

// outcome returns how the pass ended, and why.
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

// heldReason returns why a pass that had work to do changed nothing, or "". Such a pass
// does not count as a success.
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
