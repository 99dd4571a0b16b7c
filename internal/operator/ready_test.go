package operator

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/heartbeat"
	"sexton/internal/installation"
	"sexton/internal/listen"
	"sexton/internal/pgtest"
	"sexton/internal/web"
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
	paused := JobState{
		Queue: "q", Paused: true,
		Running: &Pass{Stats: json.RawMessage(`{"waiting_for": "replica r1 12 s behind"}`)},
	}
	require.NoError(t, (&shared{pauses: map[string]string{"q": "paused by me"}}).explain(t.Context(),
		&installation.Connections{}, &paused, nil))
	require.Equal(t, "paused by me", *paused.WaitingFor, "the pause hides what the run waits for")
}

func TestMain(m *testing.M) { pgtest.Main(m) }

func TestReadiness(t *testing.T) {
	t.Parallel()
	s := newObservedSite(t, "main", "ci!")
	heart := startHeart(t, s.all.Databases[0])
	stopping, stop := context.WithCancel(t.Context())
	ready := NewReadiness(stopping, s.all, nil, heart)

	got := ready.Check(t.Context())
	require.True(t, got.Ready, "another database is down: %v", got)
	require.Equal(t, web.DatabaseState{Name: "main", Ready: true, Required: true}, got.Databases[0])
	require.False(t, got.Databases[1].Ready)
	require.False(t, got.Databases[1].Required)
	require.Len(t, got.Databases[1].Reasons, 1)
	require.Contains(t, got.Databases[1].Reasons[0], "cannot be reached: ")

	ready.Subscriptions = []*listen.Subscription{{Kind: cleanUp, Database: "main"}}
	got = ready.Check(t.Context())
	require.False(t, got.Ready)
	require.Equal(t, []string{"the listener of loose_foreign_keys_cleanup has no connection"}, got.Databases[0].Reasons)

	ready.Subscriptions = nil
	s.servers["main"].Exec("DROP TABLE sexton.swept")
	got = ready.Check(t.Context())
	require.False(t, got.Ready)
	require.Len(t, got.Databases[0].Reasons, 1)
	require.Contains(t, got.Databases[0].Reasons[0], "swept")

	stop()
	got = ready.Check(t.Context())
	require.Equal(t, []string{"the worker is stopping"}, got.Reasons)
	require.False(t, got.Ready)
}

func TestNotReadyWithoutTheJobsDatabase(t *testing.T) {
	t.Parallel()
	s := newObservedSite(t, "main!", "ci")
	ready := NewReadiness(t.Context(), s.all, nil, &heartbeat.Heart{DB: s.all.Databases[0], ClientID: "me"})
	got := ready.Check(t.Context())
	require.False(t, got.Ready)
	require.Equal(t, []string{"its last heartbeats failed, so other workers consider it dead"}, got.Reasons)
	require.False(t, got.Databases[0].Ready)
	require.True(t, got.Databases[1].Ready, got.Databases[1].Reasons)
}
