package operator

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/installation"
	"sexton/internal/pgtest"
)

func TestObstacleOfARunningPass(t *testing.T) {
	t.Parallel()
	for stats, want := range map[string]*string{
		`{"delete_count": 5}`:                        nil,
		`{"waiting_for": "replica r1 12 s behind"}`:  new("replica r1 12 s behind"),
		`{"waiting_for": ["of", "another", "form"]}`: nil,
	} {
		state := JobState{Running: &Pass{RunID: 7, Stats: json.RawMessage(stats)}}
		require.NoError(t, (&shared{}).explain(t.Context(), &installation.Connections{}, &state, nil))
		require.Equal(t, want, state.WaitingFor, stats)
	}
	paused := JobState{Queue: "q", Paused: true, Running: &Pass{Stats: json.RawMessage(`{"waiting_for": "replica r1 12 s behind"}`)}}
	require.NoError(t, (&shared{pauses: map[string]string{"q": "paused by me"}}).explain(t.Context(), &installation.Connections{}, &paused, nil))
	require.Equal(t, "paused by me", *paused.WaitingFor, "the next pass will not come, whatever this one waits for")
}

func TestMain(m *testing.M) { pgtest.Main(m) }
