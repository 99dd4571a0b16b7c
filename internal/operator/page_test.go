package operator

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/components"
	"sexton/internal/database"
	"sexton/internal/installation"
	"sexton/internal/pgtest"
	"sexton/internal/web"
)

// source returns the page source of a site.
func (s observedSite) source(t *testing.T) *PageSource {
	t.Helper()
	return NewPageSource(&installation.Bound{Connections: s.all}, s.noted, slog.New(slog.DiscardHandler))
}

func (s observedSite) overview(t *testing.T) Overview {
	t.Helper()
	return pgtest.Must(s.source(t).Overview(t.Context()))(t)
}

func ann() web.Visitor { return web.Visitor{Actor: "ann", Remote: "10.0.0.7:1234"} }

func TestOverview(t *testing.T) {
	t.Parallel()
	s := newObservedSite(t, "main", "ci", "down!")
	main, ci := s.servers["main"], s.servers["ci"]
	ci.Exec(`INSERT INTO loose_foreign_keys_deleted_records (fully_qualified_table_name, primary_key_value, created_at, consume_after, cleanup_attempts, last_error) VALUES
		('public.parents', 1, now() - interval '1 minute', now(), 0, NULL), ('public.parents', 2, now(), now() + interval '10 minutes', 4, 'public.children: 23503'),
		('public.parents', 3, now(), 'infinity', 0, NULL)`)
	main.Exec(`INSERT INTO sexton.clients (client_id, host, pid) VALUES ('host:1', 'host', 1)`)
	main.Exec(`INSERT INTO sexton.runs (kind, database, holder, started_at, stats) VALUES ($1, 'ci', 'host:1', now() - interval '5 seconds', '{"processed": 3}')`, cleanUp)
	main.Exec(`INSERT INTO sexton.runs (kind, database, holder, started_at, ended_at, outcome, changed, stats) VALUES
		($1, 'main', 'host:1', now() - interval '1 hour', now() - interval '59 minutes', 'done', true, '{"processed": 1}'),
		($1, 'main', 'host:1', now() - interval '3 minutes', now() - interval '2 minutes', 'failed', false, '{"latency_seconds": {"0.002": 20, "0.003": 10}}'),
		($1, 'main', 'host:1', now() - interval '1 minute', now(), 'done', false, '{}')`, cleanUp)
	main.Exec(`INSERT INTO sexton.leases VALUES ('k', 1, 'host:1', now(), now() + interval '1 minute')`)

	source := s.source(t)
	o := pgtest.Must(source.Overview(t.Context()))(t)
	require.Len(t, o.DeletionTables, 3)
	require.Equal(t, "tombstone", o.DeletionTables[0].Unit)
	require.EqualValues(t, 3, o.DeletionTables[1].Pending)
	require.InDelta(t, time.Minute, o.DeletionTables[1].Oldest(), float64(30*time.Second))
	require.EqualValues(t, 2, o.DeletionTables[1].Deferred)
	require.Len(t, o.DeletionTables[1].Parents, 1)
	require.Equal(t, "public.parents", o.DeletionTables[1].Parents[0].Parent)
	require.EqualValues(t, 3, o.DeletionTables[1].Parents[0].Pending)
	require.InDelta(t, time.Minute, o.DeletionTables[1].Parents[0].Oldest(), float64(30*time.Second))
	require.WithinDuration(t, time.Now().Add(10*time.Minute), *o.DeletionTables[1].DeferredUntil, time.Minute)
	require.NotEmpty(t, o.DeletionTables[2].Unreachable)

	require.Len(t, o.Jobs, 3)
	for i, job := range o.Jobs {
		require.Equal(t, "loose_foreign_keys_deleted_records", job.Job.DeletionTable)
		require.WithinDuration(t, time.Now().Add(2*time.Minute), *job.NextTick, 2*time.Minute)
		require.EqualValues(t, i, job.NextTick.Unix()/60%3, "the ticks alternate between the databases")
	}
	require.Equal(t, int64(1), o.Jobs[1].Running.RunID)
	require.Equal(t, &Latency{P50: 0.001 + 0.001*15/20, P99: 0.002 + 0.001*(29.7-20)/10, Items: 30}, o.Jobs[0].Latency)
	require.Nil(t, o.Jobs[1].Latency)
	require.WithinDuration(t, time.Now(), *o.Jobs[0].LastEnded, 30*time.Second,
		"the row covers several runs, and the last has just ended")
	require.Contains(t, *o.Jobs[2].WaitingFor, "its database: ")

	// The next tick of a schedule with intervals is one interval after the last tick.
	s.all.Config.LooseForeignKeys.Schedule = "@every 5h"
	main.Exec("INSERT INTO sexton.schedules VALUES ($1, 'main', now() - interval '4 hours')", cleanUp)
	main.Exec("INSERT INTO sexton.schedules VALUES ($1, 'ci', now() - interval '40 hours')", cleanUp)
	jobs := s.overview(t).Jobs
	require.WithinDuration(t, time.Now().Add(time.Hour), *jobs[0].NextTick, time.Minute)
	require.True(t, jobs[1].NextTick.After(time.Now()), "the last tick is older than the interval")

	require.Len(t, o.Runs, 1, "runs without changes are omitted")
	require.Equal(t, time.Minute, o.Runs[0].EndedAt.Sub(o.Runs[0].StartedAt).Round(time.Second))
	require.Equal(t, "host:1", o.Workers[0].ClientID)
	require.Equal(t, "k", o.Leases[0].Key)
	require.Len(t, o.Failures.Failures, 2)
	require.Equal(t, "public.parents, key 2", o.Failures.Failures[0].What)
	require.Equal(t, "public.children: 23503", o.Failures.Failures[0].Error)
	require.False(t, o.Failures.Failures[0].GivenUp)
	require.True(t, o.Failures.Failures[1].GivenUp, "a tombstone that is deferred forever is given up")

	main.Exec("UPDATE sexton.runs SET stats = '{}'")
	require.Equal(t, o.Jobs[0].Latency, pgtest.Must(source.Overview(t.Context()))(t).Jobs[0].Latency,
		"the second request gets the cached reading")
	require.Nil(t, s.overview(t).Jobs[0].Latency)
}

func TestPauseAndResumeFromThePage(t *testing.T) {
	t.Parallel()
	s := newObservedSite(t, "main")
	source := s.source(t)
	require.NoError(t, source.SetPaused(t.Context(), ann(), cleanUp, "backup", true))
	o := s.overview(t)
	require.True(t, o.Jobs[0].Paused)
	require.Regexp(t, "^paused by ann since .*: backup$", *o.Jobs[0].WaitingFor)
	// A second pause by another user is refused and does not replace the first.
	var refused *components.RefusedError
	require.ErrorAs(t, source.SetPaused(t.Context(), web.Visitor{Actor: "ben"}, cleanUp, "migration", true), &refused)
	require.Regexp(t, "^"+cleanUp+" is already paused by ann since .*: backup; the earlier note is kept$", refused.Reason)
	require.Regexp(t, "^paused by ann since .*: backup$", *s.overview(t).Jobs[0].WaitingFor)
	require.Equal(t, database.Change{Actor: "ben", Action: "pause", Target: cleanUp, Reason: "migration"},
		withoutTime(s.overview(t).Changes[0]))
	require.NoError(t, source.SetPaused(t.Context(), ann(), cleanUp, "backup done", false))
	o = s.overview(t)
	require.False(t, o.Jobs[0].Paused)
	require.ErrorAs(t, source.SetPaused(t.Context(), ann(), "no_such_job", "", true), &refused)
	require.Len(t, o.Changes, 3)
	for i, want := range map[int]database.Change{
		0: {Action: "resume", Reason: "backup done"},
		2: {Action: "pause", Reason: "backup"},
	} {
		want.Actor, want.Remote, want.Target = "ann", "10.0.0.7:1234", cleanUp
		require.Equal(t, want, withoutTime(o.Changes[i]))
	}
	require.EqualValues(t, 3, pgtest.Scalar[int64](t, s.servers["main"].Database, "SELECT count(*) FROM sexton.audit"))
}

func withoutTime(c database.Change) database.Change {
	c.At = time.Time{}
	return c
}

func TestRetryFromThePage(t *testing.T) {
	t.Parallel()
	s := newObservedSite(t, "main", "ci")
	main, ci := s.servers["main"], s.servers["ci"]
	ci.Exec(`INSERT INTO loose_foreign_keys_deleted_records (fully_qualified_table_name, primary_key_value, consume_after, cleanup_attempts, last_error)
		SELECT 'public.parents', n, now() + interval '10 minutes', 4, 'children: 23503' FROM generate_series(1, 3) AS n`)
	source := s.source(t)
	require.Len(t, s.overview(t).Failures.Failures, 3)
	first := pgtest.Scalar[string](t, ci.Database, "SELECT min(id)::text FROM loose_foreign_keys_deleted_records")
	message := pgtest.Must(source.Retry(t.Context(), ann(),
		components.Retry{Source: "tombstones", Database: "ci", ID: first}))(t)
	require.Equal(t, "1 tombstone due now", message)
	require.EqualValues(t, 1, pgtest.Scalar[int64](t, ci.Database,
		"SELECT count(*) FROM loose_foreign_keys_deleted_records WHERE consume_after <= now() AND cleanup_attempts = 0"))
	message = pgtest.Must(source.Retry(t.Context(), ann(), components.Retry{Source: "tombstones", Database: "ci"}))(t)
	require.Equal(t, "2 tombstones due now", message)
	require.Equal(t, [][]string{{"retry", "tombstones " + first + " of ci"}, {"retry", "all tombstones of ci"}},
		main.Rows("SELECT action, target FROM sexton.audit ORDER BY id"))

	for _, wrong := range []components.Retry{
		{Source: "nothing"},
		{Source: "tombstones", Database: "elsewhere"},
		{Source: "tombstones", Database: "ci", ID: "x"},
		{Source: "tombstones", Database: "ci", ID: "-1"},
		{Source: "tombstones", Database: "ci", ID: "4711"},
		{Source: "jobs", ID: "4711"},
		{Source: "users", ID: "1"},
	} {
		_, err := source.Retry(t.Context(), ann(), wrong)
		var refused *components.RefusedError
		require.ErrorAs(t, err, &refused, "%+v", wrong)
	}

	// A change is not made if its audit record cannot be written.
	ci.Exec("UPDATE loose_foreign_keys_deleted_records SET cleanup_attempts = 4")
	main.Exec("DROP TABLE sexton.audit")
	_, err := source.Retry(t.Context(), ann(), components.Retry{Source: "tombstones", Database: "ci"})
	require.Error(t, err)
	require.EqualValues(t, 12, pgtest.Scalar[int64](t, ci.Database,
		"SELECT sum(cleanup_attempts) FROM loose_foreign_keys_deleted_records"))
}

func TestFailedJobsOfRiver(t *testing.T) {
	t.Parallel()
	s := newObservedSite(t, "main")
	main := s.servers["main"]
	source := s.source(t)
	main.Exec(`INSERT INTO sexton.river_job (kind, queue, args, state, max_attempts, attempt, attempted_at, scheduled_at, finalized_at, errors, priority)
		SELECT kind, kind, args::jsonb, state::sexton.river_job_state, most, 1, now(), now() + interval '1 hour', CASE state WHEN 'discarded' THEN now() END,
			ARRAY['{"at": "2030-01-01T00:00:00Z", "attempt": 1, "error": "first", "trace": ""}', '{"at": "2030-01-01T00:00:00Z", "attempt": 1, "error": "it broke", "trace": ""}']::jsonb[], 1
		FROM (VALUES ($1, '{"database": "unknown"}', 'discarded', 1), ($1, '{"database": "unknown"}', 'discarded', 1), ($1, '{"database": "main"}', 'discarded', 1),
			($1, '{"database": "other"}', 'retryable', 25), ('unknown', '{}', 'discarded', 1))
			AS failed (kind, args, state, most)`, cleanUp)
	failures := s.overview(t).Failures.Failures
	require.Len(t, failures, 3, "jobs with equal arguments share one line")
	require.Equal(t, "job 4, "+cleanUp, failures[0].What, "arguments are hidden")
	require.Equal(t, "it broke", failures[0].Error)
	require.WithinDuration(t, time.Now().Add(time.Hour), failures[0].Next, time.Minute)
	s.all.Config.HTTP.ShowArgs = true
	require.Equal(t, "job 3, "+cleanUp+` {"database": "main"}`, s.overview(t).Failures.Failures[1].What,
		"no later run of the kind has succeeded")

	main.Exec(`INSERT INTO sexton.runs (kind, database, holder, ended_at, outcome) VALUES ($1, 'main', 'h', now(), 'done')`, cleanUp)
	failures = s.overview(t).Failures.Failures
	require.Len(t, failures, 2, "the run supersedes job 3, but not the job of a database that is not configured")
	require.Equal(t, "job 2, "+cleanUp+` {"database": "unknown"}`, failures[1].What)
	require.True(t, failures[1].GivenUp)

	message := pgtest.Must(source.Retry(t.Context(), ann(), components.Retry{Source: "jobs", ID: "2"}))(t)
	require.Equal(t, "1 job due now", message)
	require.Equal(t, [][]string{{"available"}}, main.Rows("SELECT state FROM sexton.river_job WHERE id = 2"))
	pgtest.Must(source.Retry(t.Context(), ann(), components.Retry{Source: "jobs"}))(t)
	require.Equal(t, [][]string{{"available"}}, main.Rows("SELECT state FROM sexton.river_job WHERE id = 4"))
	require.Equal(t, [][]string{{"discarded"}}, main.Rows("SELECT state FROM sexton.river_job WHERE id = 5"),
		"a job of an unknown kind is not retried")
}

// If the connection to the jobs database is lost, Overview returns an error: a partial
// page would look like a page without pending work.
func TestOverviewWithoutTheJobsDatabase(t *testing.T) {
	t.Parallel()
	s := newObservedSite(t, "main!", "ci")
	_, err := s.source(t).Overview(t.Context())
	require.Error(t, err)
	_, err = s.source(t).History(t.Context(), time.Hour, time.Minute)
	require.Error(t, err)
}
