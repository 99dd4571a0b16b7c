package riverjobs

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"
	"github.com/stretchr/testify/require"

	"sexton/internal/config"
	"sexton/internal/dbtest"
	"sexton/internal/extdiff"
	"sexton/internal/jobrun"
	"sexton/internal/migrate"
	"sexton/internal/pgtest"
)

// diffBundle returns a bundle of the reference application with a merge request of three
// diffs, and the folder of the store.
func diffBundle(t *testing.T, environ ...string) (b bundle, folder string) {
	folder = t.TempDir()
	db := dbtest.Reference(t)
	db.Exec(`
		INSERT INTO groups (id, name, path) VALUES (1, 'group', 'group');
		INSERT INTO projects (id, group_id, name, path) VALUES (1, 1, 'project', 'project');
		INSERT INTO merge_requests (id, target_project_id, title, source_branch, target_branch) VALUES (7, 1, 'title', 'branch', 'main');
		INSERT INTO merge_request_diffs (id, merge_request_id, project_id, files_count) SELECT n, 7, 1, 1 FROM generate_series(1, 3) AS n;
		INSERT INTO merge_request_diff_files (
			merge_request_diff_id, relative_order, new_file, renamed_file, deleted_file, too_large, a_mode, b_mode, old_path, diff
		) SELECT n, 0, false, false, false, false, '0', '0', 'a', 'text ' || n FROM generate_series(1, 3) AS n`)
	b = newBundle(t, db, append([]string{
		"SEXTON_EXTERNAL_DIFFS__ENABLED=true", "SEXTON_EXTERNAL_DIFFS__BUCKET=file://" + folder,
		"SEXTON_LOOSE_FOREIGN_KEYS__ENABLED=false",
	}, environ...)...)
	conn := pgtest.Must(db.Connected.Pool.Acquire(t.Context()))(t)
	settings := conn.Conn().Config()
	conn.Release()
	pgtest.Must(migrate.Up(t.Context(), b.deps.Logger, migrate.Database{
		Name: "main", Conn: settings, TrackedSchema: "public", Jobs: true,
		Components: []string{migrate.LooseForeignKeys, migrate.GhostUsers, migrate.ExternalDiffs},
		Kinds:      Kinds(b.deps.Config),
	}))(t)
	return b, folder
}

// workUntil runs a River client until condition is true in the database.
func (b bundle) workUntil(t *testing.T, what, condition string) {
	_, stop := b.start(t)
	defer stop()
	b.waitFor(t, what, condition)
}

func TestExternalDiffsWorkers(t *testing.T) {
	t.Parallel()
	b, folder := diffBundle(t)
	require.True(t, b.due(t, ScheduleExternalDiffs).Now)
	b.db.Exec(`UPDATE sexton.external_diff_installation SET created_at = now() - interval '2 hours';
		UPDATE merge_request_diffs SET created_at = now() AT TIME ZONE 'UTC' - CASE WHEN id = 1 THEN interval '40 min' ELSE interval '9 years' END`)
	b.enqueue(t, ScheduleExternalDiffsArgs{})
	b.workUntil(t, "all diffs to be moved",
		"NOT EXISTS (SELECT FROM sexton.river_job WHERE state <> 'completed') AND (SELECT count(*) FROM sexton.river_job) = 4")
	require.Equal(t, [][]string{{"3"}}, b.db.Rows("SELECT count(*) FROM merge_request_diffs WHERE stored_externally"))
	content := pgtest.Must(os.ReadFile(filepath.Join(folder, "merge_request_diffs/mr-7/diff-2")))(t)
	require.Equal(t, "text 2", string(content))
	require.Contains(t, b.log.String(), "msg=diff_moved")
	require.Contains(t, b.log.String(), "diff_id=2")
	require.Equal(t, [][]string{{"14400", "2"}, {"3600", "1"}}, b.db.Rows(`SELECT bin.key, sum(bin.value::bigint) FROM sexton.runs
		CROSS JOIN LATERAL jsonb_each_text(stats::jsonb -> 'latency_seconds') AS bin WHERE kind = 'migrate_external_diff' GROUP BY 1 ORDER BY 1`),
		"latency counts from the creation of the diff, or from the installation if that is later")
	require.False(t, b.due(t, ScheduleExternalDiffs).Now)

	b.db.Exec("DELETE FROM merge_requests")
	require.True(t, b.due(t, ScheduleExternalDiffs).Now, "objects must be removed")
	b.enqueue(t, ScheduleExternalDiffsArgs{})
	b.workUntil(t, "all objects to be removed",
		"NOT EXISTS (SELECT FROM sexton.external_diff_removals) AND NOT EXISTS (SELECT FROM sexton.river_job WHERE state <> 'completed')")
	require.NoDirExists(t, filepath.Join(folder, "merge_request_diffs/mr-7"))
	require.False(t, b.due(t, ScheduleExternalDiffs).Now)
}

func TestDiffsDeletedSinceTheScanGetNoJob(t *testing.T) {
	t.Parallel()
	b, _ := diffBundle(t)
	granted := pgtest.Must(b.deps.Runner.Leases.Acquire(t.Context(), scheduleLease, scheduleLeaseTTL,
		b.db.Connected))(t)
	scheduler := extdiff.Scheduler{
		Conn: pgtest.Acquire(t, b.db.Pool()).Conn(), Names: b.db.Connected.Names, Fence: granted, Rule: extdiff.Always,
	}
	scheduler.Insert = func(ctx context.Context, tx pgx.Tx, ids []int64, wait time.Duration) (int, error) {
		b.db.Exec("DELETE FROM merge_request_diffs WHERE id = 2")
		return scheduler.Enqueue(ctx, tx, ids, wait)
	}
	require.Equal(t, &extdiff.Schedule{Looked: 3, Due: 2, Inserted: 2}, pgtest.Must(scheduler.Run(t.Context()))(t))
	require.Equal(t, [][]string{{"1"}, {"3"}}, b.db.Rows("SELECT args ->> 'diff_id' FROM sexton.river_job ORDER BY 1"))
}

// The store's address refuses connections. The job is snoozed without counting an
// attempt.
func TestOutageCountsNoAttempt(t *testing.T) {
	t.Parallel()
	b, _ := diffBundle(t, "SEXTON_EXTERNAL_DIFFS__BUCKET=s3://diffs?endpoint=http://127.0.0.1:1&region=x")
	b.enqueue(t, MigrateExternalDiffArgs{DiffID: 1})
	b.workUntil(t, "the job to be deferred", "(SELECT state = 'scheduled' FROM sexton.river_job)")
	require.Equal(t, [][]string{{"t", "0", "1", "t"}}, b.db.Rows(`
		SELECT max_attempts - attempt >= 3, coalesce(array_length(errors, 1), 0), metadata ->> 'snoozes', scheduled_at > now() + interval '5 seconds'
		FROM sexton.river_job`))
	require.Equal(t, [][]string{{"skipped", "t"}}, b.db.Rows(`
		SELECT outcome, stats ->> 'waiting_for' LIKE '%s3://diffs: the store is not available: connection refused' FROM sexton.runs`))
	require.NotContains(t, b.log.String(), os.Getenv("AWS_SECRET_ACCESS_KEY"))
	require.Contains(t, b.log.String(), "msg=store_unavailable")
	require.Empty(t, b.db.Rows("SELECT FROM sexton.external_diffs"), "no state of the diff is stored")
}

// After an outage, jobs are retried soon, however often they were deferred before. During
// the pause no job accesses the store. A failure of one diff after a success of another
// job starts no pause.
func TestDiffsAreRetriedSoonAfterAnOutage(t *testing.T) {
	t.Parallel()
	b, _ := diffBundle(t, "SEXTON_EXTERNAL_DIFFS__BUCKET=s3://diffs?endpoint=http://127.0.0.1:1&region=x")
	for id := range int64(3) {
		b.enqueue(t, MigrateExternalDiffArgs{DiffID: id + 1})
	}
	b.db.Exec(`UPDATE sexton.river_job SET metadata = '{"snoozes": 1000, "output": {"pauses": 1000}}'`)
	b.deps.Bindings.store.pause = longestPause
	b.workUntil(t, "the jobs to be deferred", "(SELECT count(*) = 3 FROM sexton.river_job WHERE state = 'scheduled')")
	require.Equal(t, [][]string{{"3"}},
		b.db.Rows("SELECT count(*) FROM sexton.river_job WHERE scheduled_at < attempted_at + interval '2 minutes'"))

	store := &b.deps.Bindings.store
	require.NotZero(t, store.wait(time.Now()))
	before := b.db.Rows("SELECT count(*) FROM sexton.runs")
	b.db.Exec("UPDATE sexton.river_job SET state = 'available', scheduled_at = now(), metadata = '{}'")
	b.workUntil(t, "the jobs to be deferred again",
		"(SELECT count(*) = 3 FROM sexton.river_job WHERE state = 'scheduled' AND metadata ? 'snoozes')")
	require.Equal(t, before, b.db.Rows("SELECT count(*) FROM sexton.runs"), "no job has begun a pass")

	// Set the last success to the future, as if another job had succeeded after this one
	// began.
	store.end(time.Now().Add(time.Hour))
	b.db.Exec("UPDATE sexton.river_job SET state = 'available', scheduled_at = now(), metadata = '{}' WHERE args ->> 'diff_id' = '1'")
	b.workUntil(t, "the job to be deferred",
		"(SELECT count(*) = 3 FROM sexton.river_job WHERE state = 'scheduled' AND metadata ? 'snoozes')")
	require.Zero(t, store.wait(time.Now()))
}

// retrySnoozedJobs is SQL that makes snoozed jobs available immediately, instead of when
// River's scheduler runs.
const retrySnoozedJobs = `
	CREATE FUNCTION retry_now() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		NEW.state = 'available'; NEW.scheduled_at = now();
		PERFORM pg_notify('sexton.river_insert', json_build_object('queue', NEW.queue)::text);
		RETURN NEW;
	END $$;
	CREATE TRIGGER retry_now BEFORE UPDATE ON sexton.river_job FOR EACH ROW
	WHEN (OLD.state = 'running' AND NEW.state IN ('available', 'scheduled') AND NEW.errors IS NOT DISTINCT FROM OLD.errors) EXECUTE FUNCTION retry_now();`

// The server terminates the session in which a diff is moved, more often than the job has
// attempts. The diff is still moved, without a failed attempt.
func TestLostConnectionCountsNoAttempt(t *testing.T) {
	t.Parallel()
	b, _ := diffBundle(t)
	b.db.Exec(retrySnoozedJobs + `CREATE SEQUENCE cuts;
		CREATE FUNCTION cut() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			IF nextval('cuts') <= 4 THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF;
			RETURN NEW;
		END $$;
		CREATE TRIGGER cut BEFORE UPDATE ON merge_request_diff_files FOR EACH ROW EXECUTE FUNCTION cut()`)
	b.enqueue(t, MigrateExternalDiffArgs{DiffID: 1})
	b.workUntil(t, "the diff to be moved",
		"(SELECT stored_externally FROM merge_request_diffs WHERE id = 1) AND (SELECT state = 'completed' FROM sexton.river_job WHERE kind = 'migrate_external_diff')")
	require.Equal(t, [][]string{{"0", "1"}},
		b.db.Rows("SELECT coalesce(array_length(errors, 1), 0), attempt FROM sexton.river_job WHERE kind = 'migrate_external_diff'"))
}

// A job that always loses its connection, for example because a trigger crashes the
// server, fails after mostLostConns lost connections.
func TestAJobThatAlwaysLosesItsConnectionFails(t *testing.T) {
	t.Parallel()
	b, _ := diffBundle(t)
	b.db.Exec(retrySnoozedJobs + `CREATE FUNCTION cut() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NEW; END $$;
		CREATE TRIGGER cut BEFORE UPDATE ON merge_request_diff_files FOR EACH ROW EXECUTE FUNCTION cut()`)
	b.enqueue(t, MigrateExternalDiffArgs{DiffID: 1})
	b.db.Exec(`UPDATE sexton.river_job SET metadata = '{"output": {"cuts": 19}}' WHERE kind = 'migrate_external_diff'`)
	b.workUntil(t, "the job to fail",
		"(SELECT attempt > 1 OR errors IS NOT NULL FROM sexton.river_job WHERE kind = 'migrate_external_diff')")
	require.Equal(t, [][]string{{"1", "21", "1"}},
		b.db.Rows("SELECT array_length(errors, 1), metadata -> 'output' -> 'cuts', metadata -> 'snoozes' FROM sexton.river_job WHERE kind = 'migrate_external_diff'"))
}

// If the folder of the store does not exist, only the first of several jobs fails and
// logs that. No job loses an attempt.
func TestRefusalIsLoggedOnceAndCountsNoAttempt(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "disk")
	b, _ := diffBundle(t, "SEXTON_EXTERNAL_DIFFS__BUCKET=file://"+folder)
	b.deps.Bindings.store.pause = longestPause // The long pause does not end during the test.
	for id := range int64(3) {
		b.enqueue(t, MigrateExternalDiffArgs{DiffID: id + 1})
	}
	b.workUntil(t, "all jobs to be deferred", "(SELECT count(*) = 3 FROM sexton.river_job WHERE state = 'scheduled')")
	require.Equal(t, [][]string{{"3", "0", "t"}}, b.db.Rows(`
		SELECT min(max_attempts - attempt), count(errors), min(scheduled_at) > now() + interval '5 minutes' FROM sexton.river_job`))
	require.Equal(t, [][]string{{"1", "t"}}, b.db.Rows(`
		SELECT count(*), bool_and(error LIKE '%create the folder%' AND (stats ->> 'refused')::boolean) FROM sexton.runs WHERE outcome = 'failed'`))
	require.Equal(t, 1, strings.Count(b.log.String(), "create the folder"), b.log)
	require.Empty(t, b.db.Rows("SELECT FROM sexton.external_diffs WHERE skip_reason IS NOT NULL"),
		"no diff is marked as skipped")

	require.NoError(t, os.Mkdir(folder, 0o750))
	b.deps.Bindings.store.until = time.Now()
	b.db.Exec("UPDATE sexton.river_job SET scheduled_at = now()")
	b.workUntil(t, "all diffs to be moved", "(SELECT count(*) = 3 FROM merge_request_diffs WHERE stored_externally)")
	require.Zero(t, b.deps.Bindings.store.pause)
}

// If the store refuses one object after another job has succeeded, the failure starts no
// pause for other jobs.
func TestRefusalAfterASuccessStartsNoPause(t *testing.T) {
	t.Parallel()
	b, _ := diffBundle(t, "SEXTON_EXTERNAL_DIFFS__BUCKET=file://"+filepath.Join(t.TempDir(), "disk"))
	b.deps.Bindings.store.end(time.Now().Add(time.Hour))
	b.enqueue(t, MigrateExternalDiffArgs{DiffID: 1})
	b.workUntil(t, "the job to be deferred", "(SELECT count(*) = 1 FROM sexton.river_job WHERE state = 'scheduled')")
	require.Zero(t, b.deps.Bindings.store.wait(time.Now()))
	require.Equal(t, [][]string{{"1"}},
		b.db.Rows("SELECT count(*) FROM sexton.runs WHERE outcome = 'failed' AND error LIKE '%create the folder%'"))
}

func TestPausesGrow(t *testing.T) {
	t.Parallel()
	for metadata, want := range map[string]time.Duration{
		``: 10 * time.Second, `{"output": {"pauses": 1}}`: 20 * time.Second,
		`{"output": {"pauses": 1000}}`:                                   15 * time.Minute,
		`{"snoozes": 1000, "output": {"reason": "another works on it"}}`: 10 * time.Second,
	} {
		p := newPass(Deps{}, &rivertype.JobRow{Metadata: []byte(metadata)})
		p.deferJob()
		require.Equal(t, want, p.later, metadata)
	}
}

// A job that waits for another process's claim is retried when the claim ends, but after
// a minute at the latest, however often it was deferred before.
func TestMoveWaitsUntilTheClaimEnds(t *testing.T) {
	t.Parallel()
	b, _ := diffBundle(t)
	b.db.Exec(`INSERT INTO sexton.external_diffs (diff_id, holder, busy_until)
		VALUES (1, 'dead', clock_timestamp() + interval '50 seconds'), (2, 'dead', clock_timestamp() + interval '15 minutes')`)
	for id := range int64(2) {
		b.enqueue(t, MigrateExternalDiffArgs{DiffID: id + 1})
	}
	b.db.Exec(`UPDATE sexton.river_job SET metadata = '{"snoozes": 1000, "output": {"pauses": 3}}'`)
	b.workUntil(t, "the jobs to be deferred", "(SELECT count(*) = 2 FROM sexton.river_job WHERE state = 'scheduled')")
	require.Equal(t, [][]string{{"1", "t", "1001", "3"}, {"2", "t", "1001", "3"}}, b.db.Rows(`
		SELECT ledger.diff_id, job.scheduled_at BETWEEN job.attempted_at + interval '10 seconds' AND job.attempted_at + interval '2 minutes',
			job.metadata ->> 'snoozes', job.metadata -> 'output' ->> 'pauses'
		FROM sexton.external_diffs AS ledger JOIN sexton.river_job AS job ON (job.args ->> 'diff_id')::bigint = ledger.diff_id ORDER BY 1`))
}

func TestTheTickLimitsTheSchedule(t *testing.T) {
	t.Parallel()
	b, _ := diffBundle(t, "SEXTON_EXTERNAL_DIFFS__LIMIT=2")
	b.db.Exec("INSERT INTO sexton.schedules (kind, database, last_tick) VALUES ($1, 'main', now() - interval '1 minute')", ScheduleExternalDiffs)
	report := b.mustRun(t, ScheduleExternalDiffsArgs{})
	require.Equal(t, jobrun.OverLimit, report.Outcome)
	require.Equal(t, [][]string{{"2"}}, b.db.Rows("SELECT count(*) FROM sexton.river_job"))
	require.False(t, b.due(t, ScheduleExternalDiffs).Now, "the remaining diffs wait for the next tick")
	taken := pgtest.Must(b.deps.Runner.Leases.Acquire(t.Context(), scheduleLease, time.Minute, b.db.Connected))(t)
	report = b.mustRun(t, ScheduleExternalDiffsArgs{})
	require.Equal(t, jobrun.Skipped, report.Outcome)
	require.Contains(t, b.log.String(), "failed to obtain lock")
	require.NoError(t, taken.Release(t.Context()))
}

// A move or removal that is interrupted by a stop does not count as failed.
func TestStopDoesNotFailJobsOfDiffs(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, map[string]struct {
		args river.JobArgs
		lock string
	}{
		"move": {MigrateExternalDiffArgs{DiffID: 1}, "LOCK TABLE merge_request_diff_files"},
		"remove": {ScheduleExternalDiffsArgs{}, `INSERT INTO sexton.external_diffs (diff_id, holder, busy_until)
			VALUES (2, 'other', now()) ON CONFLICT (diff_id) DO UPDATE SET holder = 'other'`},
	}, func(t *testing.T, _ string, c struct {
		args river.JobArgs
		lock string
	},
	) {
		b, _ := diffBundle(t)
		b.mustRun(t, MigrateExternalDiffArgs{DiffID: 2})
		b.db.Exec("DELETE FROM merge_request_diffs WHERE id = 2; UPDATE merge_request_diffs SET files_count = 0 WHERE id = 3; DELETE FROM sexton.runs")
		if c.args.Kind() == ScheduleExternalDiffs {
			b.db.Exec("UPDATE merge_request_diffs SET files_count = 0")
		}
		stopping, stop := context.WithCancel(t.Context())
		b.deps.Stopping = stopping
		ended := make(chan struct{})
		b.deps.Working = func(int64) func() { return func() { close(ended) } }
		client, _ := b.start(t)
		locked := pgtest.Begin(t, b.db.Pool(), c.lock)
		pgtest.Must(client.Insert(t.Context(), c.args, nil))(t)
		pgtest.Await(t, b.db.Database, "the job to wait for the lock", `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database()
			AND wait_event_type = 'Lock' AND pid <> pg_backend_pid())`)
		stop()
		<-ended
		require.NoError(t, locked.Rollback(t.Context()))
		require.NotContains(t, b.log.String(), "level=ERROR")
		require.Equal(t, [][]string{{"0"}},
			b.db.Rows("SELECT count(*) FROM sexton.runs WHERE outcome = 'failed' OR outcome IS NULL"))
		require.Empty(t, b.db.Rows("SELECT FROM sexton.external_diff_removals WHERE last_error IS NOT NULL"))
	})
}

// A search that ended at its time limit continues in the next pass. A search that reached
// the tick's limit continues at the next tick.
func TestUnfinishedSearchContinuesImmediately(t *testing.T) {
	t.Parallel()
	for more, reason := range map[bool]string{
		true:  "the next run continues immediately",
		false: "the next tick continues",
	} {
		stats := scheduleStats{Schedule: extdiff.Schedule{OverLimit: !more, More: more}}
		require.True(t, stats.result().Over)
		require.Equal(t, "more diffs are due; "+reason, stats.result().Left)
	}
}

// An open transaction that has enqueued the job of one diff does not prevent the jobs of
// other diffs.
func TestOpenEnqueueOfOneDiffDoesNotBlockOthers(t *testing.T) {
	t.Parallel()
	b, _ := diffBundle(t)
	open := pgtest.Begin(t, b.db.Pool(), `SELECT sexton.enqueue('migrate_external_diff', '{"diff_id": 2}')`)
	require.Equal(t, jobrun.Done, pgtest.Must(run(t.Context(), b.deps, ScheduleExternalDiffsArgs{}))(t).Outcome)
	require.NoError(t, open.Rollback(t.Context()))
	require.Equal(t, [][]string{{"1"}, {"3"}}, b.db.Rows("SELECT args ->> 'diff_id' FROM sexton.river_job ORDER BY 1"))
}

func TestExternalDiffsAreTwoKindsInOneDatabase(t *testing.T) {
	t.Parallel()
	c := &config.Config{
		Databases: []config.Database{{Name: "main"}, {Name: "ci"}}, Jobs: config.Jobs{Database: "ci"},
		ExternalDiffs: config.ExternalDiffs{Enabled: true, Schedule: "15 * * * *", When: "always"},
	}
	jobs := Jobs(c)
	require.Len(t, jobs, 2)
	require.Equal(t, []string{"ci"}, jobs[0].Databases)
	require.True(t, jobs[1].Inserted())
	wakes := jobs[0].wakesIn("app")
	require.Len(t, wakes, 2)
	require.Equal(t, "sexton", wakes[0].Schema)
	require.Equal(t, "app", wakes[1].Schema)
	require.Equal(t, ScheduleExternalDiffs, wakes[1].Kind)
	c.ExternalDiffs.When = "outdated"
	require.Len(t, Jobs(c)[0].wakesIn("app"), 1)
}
