package jobrun

import (
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/batch"
)

func TestResults(t *testing.T) {
	t.Parallel()
	const stopped = "stopped before all work was done"
	faults := []batch.FaultCounts{{Table: "notes", SQLState: "ZZ001", Message: "kept", Count: 2}}
	for _, test := range []struct {
		name    string
		result  Result
		outcome Outcome
		reason  string
		held    string
	}{
		{"nothing to do", Result{Idle: true}, Done, "", ""},
		{"done with a reason", Result{Reason: "gone already", Faults: faults}, Done, "gone already", ""},
		{"skipped", Result{Skipped: "paused", Over: true, Left: "rows"}, Skipped, "paused", ""},
		{
			"something was done",
			Result{Over: true, Left: "rows are left", Waited: "row locked", Faults: faults},
			OverLimit, "rows are left; blocked by row locked", "",
		},
		{"waited", Result{Idle: true, Over: true, Waited: "row locked", Faults: faults}, OverLimit, "", "row locked"},
		{
			"waited until it was stopped",
			Result{Idle: true, Stopped: true, Waited: "row locked"},
			OverLimit, stopped,
			"row locked",
		},
		{"stopped", Result{Idle: true, Stopped: true}, OverLimit, stopped, ""},
		{"failed", Result{Idle: true, Faults: faults}, Done, "", "notes: SQLSTATE ZZ001: kept"},
		{
			"over limit without progress",
			Result{Idle: true, Over: true, Left: "rows are left"},
			OverLimit, "rows are left", "the time limit was reached before anything was done",
		},
	} {
		outcome, reason := test.result.outcome()
		require.Equal(t, test.outcome, outcome, test.name)
		require.Equal(t, test.reason, reason, test.name)
		require.Equal(t, test.held, test.result.heldReason(), test.name)
	}
}
