package app

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestActivityOfARunningPass(t *testing.T) {
	t.Parallel()
	for stats, want := range map[string]string{
		`{"delete_count": 5}`:                        "works (run 7)",
		`{"waiting_for": "replica r1 12 s behind"}`:  "waits for replica r1 12 s behind",
		`{"waiting_for": ["of", "another", "form"]}`: "works (run 7)",
	} {
		state := JobState{Running: &runningPass{RunID: 7, Stats: json.RawMessage(stats)}}
		state.explain(statusDocument{})
		require.Equal(t, want, state.activity(1), stats)
	}
	paused := JobState{
		Paused: true, Running: &runningPass{Stats: json.RawMessage(`{"waiting_for": "replica r1 12 s behind"}`)},
		obstacles: obstacles{paused: "paused by me"},
	}
	paused.explain(statusDocument{})
	require.Equal(t, "is paused by me", paused.activity(1), "the next pass will not come, whatever this one waits for")
}
