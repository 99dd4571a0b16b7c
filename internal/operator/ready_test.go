package operator

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/database"
	"sexton/internal/installation"
	"sexton/internal/pgtest"
	"sexton/internal/web"
)

func TestNotReadyWithoutSuccess(t *testing.T) {
	t.Parallel()
	s := observe(t, "main", "ci")
	run := func(name, outcome, ago string) {
		s.servers["main"].Exec(`INSERT INTO sexton.runs (kind, database, holder, started_at, ended_at, outcome)
			VALUES ($1, $2, 'me', now() - $4::interval, now() - $4::interval, $3)`, cleanUp, name, outcome, ago)
	}
	now := time.Now()
	late := func(started time.Time) map[string][]string {
		return pgtest.Must(lateJobs(t.Context(), s.all, started, now))(t)
	}
	require.Empty(t, late(now.Add(-time.Hour)), "it has not run yet")

	// Ticks come every minute, for the two databases in turn: three of them take four to six minutes, and five more are waited.
	run("main", "done", "7 minutes")
	run("main", "failed", "1 minute")
	require.Empty(t, late(now.Add(-time.Hour)))
	run("ci", "over_limit", "12 minutes")
	run("ci", "skipped", "1 minute")
	reasons := late(now)
	require.Len(t, reasons, 1)
	require.Len(t, reasons["ci"], 1)
	require.Regexp(t, "^"+cleanUp+" had its last success at [^ ]*Z, more than three ticks of its schedule ago$", reasons["ci"][0])

	heart := beating(t, s.all.Databases[0])
	check := func() web.Readiness {
		ready := NewReadiness(t.Context(), s.all, nil, heart)
		ready.late.Timeout = time.Minute
		return ready.Check(t.Context())
	}
	got := check()
	require.True(t, got.Ready, "it delays only itself: %v", got)
	require.Equal(t, reasons["ci"], got.Databases[1].Reasons)
	require.False(t, got.Databases[1].Ready)

	s.servers["main"].Exec("DELETE FROM sexton.runs WHERE outcome = 'done'")
	require.NotContains(t, late(now), "main", "a worker that has only begun may mend it")
	require.Equal(t, []string{cleanUp + " has had no success yet; its last run failed"}, late(now.Add(-time.Hour))["main"])
	require.True(t, check().Ready)

	run("main", "done", "12 minutes")
	require.False(t, check().Ready, "the jobs' own database")

	pgtest.Must(s.all.SetPaused(t.Context(), cleanUp, true, database.Change{Actor: "ann"}))(t)
	require.Empty(t, late(now.Add(-time.Hour)), "paused")
}

func TestActivityOfARunningPass(t *testing.T) {
	t.Parallel()
	for stats, want := range map[string]string{
		`{"delete_count": 5}`:                        "works (run 7)",
		`{"duty": 50, "duty_reason": "lock wait"}`:   "works (run 7) at 50 % of its time (lock wait)",
		`{"waiting_for": "replica r1 12 s behind"}`:  "waits for replica r1 12 s behind",
		`{"waiting_for": ["of", "another", "form"]}`: "works (run 7)",
	} {
		state := JobState{Running: &Pass{RunID: 7, Stats: json.RawMessage(stats)}}
		require.NoError(t, (&shared{}).explain(t.Context(), &installation.Connections{}, &state, nil))
		require.Equal(t, want, state.activity(1), stats)
	}
	paused := JobState{Queue: "q", Paused: true, Running: &Pass{Stats: json.RawMessage(`{"waiting_for": "replica r1 12 s behind"}`)}}
	require.NoError(t, (&shared{pauses: map[string]string{"q": "paused by me"}}).explain(t.Context(), &installation.Connections{}, &paused, nil))
	require.Equal(t, "is paused by me", paused.activity(1), "the next pass will not come, whatever this one waits for")
}

func TestMain(m *testing.M) { pgtest.Main(m) }
