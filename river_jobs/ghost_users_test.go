package riverjobs

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/riverqueue/river"
	"github.com/stretchr/testify/require"

	"sexton/internal/config"
	"sexton/internal/drain/dml"
	"sexton/internal/ghostuser"
	"sexton/internal/jobrun"
	"sexton/internal/listen"
	"sexton/internal/metrics"
	"sexton/internal/pgtest"
)

// ghostBundle returns a bundle of the reference application with the users Ada (1) and
// Ben (2). Each has written an issue.
func ghostBundle(t *testing.T) bundle {
	return newApplication(t, `
		INSERT INTO users (id, username, email, name) VALUES (1, 'ada', 'ada@example.com', 'Ada'), (2, 'ben', 'ben@example.com', 'Ben');
		INSERT INTO groups (id, name, path) VALUES (1, 'group', 'group');
		INSERT INTO projects (id, group_id, name, path, creator_id) VALUES (1, 1, 'project', 'project', 1);
		INSERT INTO issues (id, project_id, title, author_id, updated_by_id) VALUES (1, 1, 'by Ada', 1, 1), (2, 1, 'by Ben', 2, 2);`, "SEXTON_GHOST_USERS__ENABLED=true")
}

func TestGhostUsersWorker(t *testing.T) {
	t.Parallel()
	b := ghostBundle(t)
	b.db.Exec("INSERT INTO sexton.job_kinds (kind, queue, cron, max_attempts, args, defaults) VALUES ($1, $1, true, 1, '{}', '{}') ON CONFLICT DO NOTHING", GhostUsers)
	require.Equal(t, listen.Due{}, b.due(t, GhostUsers))
	require.True(t, pgtest.Scalar[bool](t, b.db.Database, "SELECT sexton.delete_user(1, 2, false)"))
	require.True(t, b.due(t, GhostUsers).Now)
	require.Equal(t, river.EventKindJobCompleted, b.workOne(t, MigrateRecordsToGhostUserArgs{}).Kind)
	require.Equal(t, [][]string{{"1", "ghost", "NULL"}, {"2", "ben", "2"}},
		b.db.Rows("SELECT issues.id, users.username, issues.updated_by_id FROM issues JOIN users ON users.id = issues.author_id ORDER BY issues.id"))
	require.Empty(t, b.db.Rows("SELECT FROM users WHERE id = 1"))
	require.Equal(t, [][]string{{"done", "1"}},
		b.db.Rows("SELECT outcome, stats ->> 'users_processed' FROM sexton.runs WHERE changed"))
	require.Contains(t, b.log.String(), "msg=user_processed")
	require.Contains(t, b.log.String(), "user_id=1")
	require.Equal(t, listen.Due{}, b.due(t, GhostUsers))
	require.Equal(t, river.EventKindJobCompleted, b.workOne(t, MigrateRecordsToGhostUserArgs{}).Kind)
	require.Len(t, b.db.Rows("SELECT FROM users"), 2, "the second run changes nothing")
}

func TestDeferredGhostUsersAreNotDue(t *testing.T) {
	t.Parallel()
	b := ghostBundle(t)
	b.db.Exec("INSERT INTO users_ghost_user_migrations (user_id, consume_after, created_at, updated_at) VALUES (1, now() + interval '1 hour', now(), now())")
	due := b.due(t, GhostUsers)
	require.False(t, due.Now)
	require.InDelta(t, 3600, due.In.Seconds(), 60)
	b.db.Exec("UPDATE users_ghost_user_migrations SET consume_after = now()")
	require.True(t, b.due(t, GhostUsers).Now)
	b.db.Exec("INSERT INTO sexton.river_queue (name, updated_at, paused_at) VALUES ($1, now(), now())", GhostUsers)
	require.False(t, b.due(t, GhostUsers).Now, "paused")
}

// If a whole pass fails, wake-ups start no pass until a pause has ended. The pause
// increases with each failure, and a successful pass ends it.
func TestGhostUsersBackOff(t *testing.T) {
	t.Parallel()
	b := ghostBundle(t)
	b.deps.Config = configuration(t, "SEXTON_GHOST_USERS__ENABLED=true",
		"SEXTON_GHOST_USERS__MOVE=[{table: isues, columns: [author_id]}]")
	b.db.Exec("SELECT sexton.delete_user(1, 2, false)")
	subscription := ghostUsers(b.deps.Config).subscription(b.deps, b.db.Connected)
	_, err := run(t.Context(), b.deps, MigrateRecordsToGhostUserArgs{})
	require.ErrorContains(t, err, "table isues does not exist")
	require.Greater(t, pgtest.Must(subscription.Work(t.Context(), b.db.Connected.Pool, true))(t), failedRetry)
	require.Empty(t, b.db.Rows("SELECT FROM sexton.river_job"), "no job while the pause lasts")

	b.deps.Config = configuration(t, "SEXTON_GHOST_USERS__ENABLED=true")
	b.mustRun(t, MigrateRecordsToGhostUserArgs{})
	require.Zero(t, b.deps.Bindings.ghosts.wait(time.Now()))
}

func TestGhostErrorRate(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		processed, failed, unfinished int64
		share                         float64
		alarming                      bool
	}{
		{0, 0, 50, 0, false},
		{0, 9, 50, 1, false},
		{9, 1, 0, 0.1, false},
		{8, 2, 0, 0.2, true},
		{0, 10, 0, 1, true},
		{90, 10, 0, 0.1, false},
		{89, 11, 0, 0.11, true},
	} {
		share, alarming := ghostErrorRate(&ghostuser.Stats{
			UsersProcessed: test.processed, UsersFailed: test.failed,
			UsersUnfinished: test.unfinished,
		})
		require.InDelta(t, test.share, share, 1e-9, "%+v", test)
		require.Equal(t, test.alarming, alarming, "%+v", test)
	}
}

// runGhosts runs one pass and returns how often it counted each of the two alerts.
func (b bundle) runGhosts(t *testing.T) (backlog, errors int64) {
	observer := &lastRun{}
	b.deps.Runner.Observer = observer
	b.log.Take()
	require.Equal(t, jobrun.Done, b.mustRun(t, MigrateRecordsToGhostUserArgs{}).Outcome)
	return observer.ended.Counts[metrics.GhostBacklogAlerts][""], observer.ended.Counts[metrics.GhostErrorAlerts][""]
}

// lastRun is an Observer that stores the last ended run.
type lastRun struct{ ended jobrun.Ended }

func (r *lastRun) RunEnded(ended jobrun.Ended) { r.ended = ended }

const (
	backlogWarning = `level=WARN msg=ghost_users_backlog`
	errorWarning   = `level=WARN msg=ghost_users_failing`
)

func TestGhostErrorAlertAndFailures(t *testing.T) {
	t.Parallel()
	b := ghostBundle(t)
	b.db.Exec(`
		INSERT INTO users (id, username, email, name) SELECT n, 'user' || n, n || '@example.com', 'User' FROM generate_series(11, 20) AS n;
		INSERT INTO issues (id, project_id, title, author_id) SELECT n, 1, 'by ' || n, n FROM generate_series(11, 20) AS n;
		CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'not this one' USING ERRCODE = 'P0042'; END $$;
		CREATE TRIGGER refuse BEFORE UPDATE ON issues FOR EACH ROW WHEN (old.author_id IN (11, 12)) EXECUTE FUNCTION refuse();
		SELECT sexton.delete_user(id, NULL) FROM users WHERE id > 10;`)
	backlog, errors := b.runGhosts(t)
	require.Equal(t, []int64{0, 1}, []int64{backlog, errors})
	log := b.log.String()
	require.Contains(t, log, errorWarning+" kind="+GhostUsers+
		" database=main processed=8 failed=2 error_share=0.2 alert_above=0.1")
	require.NotContains(t, log, backlogWarning)
	for _, user := range []int{11, 12} {
		require.Regexp(t,
			fmt.Sprintf(`level=ERROR msg=user_failed kind=%s database=main user_id=%d hard_delete=false outcome=failed moved=0 deleted=0 nullified=0 `+
				`table=issues sqlstate=P0042 error="not this one" stack="PL/pgSQL function .*refuse\(\) line 1 at RAISE`,
				GhostUsers, user), log)
	}
	require.Regexp(t, `msg=run_ended .*processed=8 failed=2`, log)

	// With fewer than ghostErrorsFrom users, the same share of failures causes no alert.
	b.db.Exec("UPDATE users_ghost_user_migrations SET consume_after = now()")
	backlog, errors = b.runGhosts(t)
	require.Equal(t, []int64{0, 0}, []int64{backlog, errors})
	require.NotContains(t, b.log.String(), errorWarning)
}

func TestGhostBacklogAlert(t *testing.T) {
	t.Parallel()
	b := ghostBundle(t)
	b.db.Exec(`
		INSERT INTO users (id, username, email, name) SELECT n, 'user' || n, n || '@example.com', 'User' FROM generate_series(1001, 2001) AS n;
		INSERT INTO users_ghost_user_migrations (user_id, consume_after, created_at)
		SELECT id, now() + '1 hour', now() - '90 s'::interval FROM users WHERE id > 1000;`)
	backlog, errors := b.runGhosts(t)
	require.Equal(t, []int64{1, 0}, []int64{backlog, errors}, "deferred users count as pending")
	require.Regexp(t, backlogWarning+` kind=`+GhostUsers+
		` database=main waiting=1001 capped=false deferred=1001 oldest_age_seconds=9\d\.\d+ alert_above=1000`,
		b.log.String())

	b.db.Exec("DELETE FROM users_ghost_user_migrations WHERE user_id = 2001")
	backlog, errors = b.runGhosts(t)
	require.Equal(t, []int64{0, 0}, []int64{backlog, errors}, "1,000 pending users cause no alert")
	require.NotContains(t, b.log.String(), backlogWarning)
}

// A run that waits for another session's row lock until its end reports which session
// held the lock.
func TestGhostUsersReportTheLockHolder(t *testing.T) {
	t.Parallel()
	b := ghostBundle(t)
	b.deps.Config.GhostUsers.MaxRuntime = 10 * time.Second
	b.db.Exec("SELECT sexton.delete_user(1, 2)")
	tx := pgtest.Begin(t, b.db.Pool(), "SELECT FROM issues WHERE author_id = 1 FOR UPDATE")
	require.Equal(t, jobrun.OverLimit, b.mustRun(t, MigrateRecordsToGhostUserArgs{}).Outcome)
	reason := fmt.Sprintf(`row locked by pid %d\b`, tx.Conn().PgConn().PID())
	require.Regexp(t, `msg=run_ended .*held\\":\\"issues: `+reason, b.log.String())
	require.Equal(t, "0", pgtest.Scalar[string](t, b.db.Database,
		"SELECT attempts::text FROM users_ghost_user_migrations"))
}

// If a pass of any kind fails, exactly one log line contains the cause: of jobrun, of the
// kind or of River.
func TestOneFailureIsLoggedOnce(t *testing.T) {
	t.Parallel()
	const noBatch = "ALTER FUNCTION sexton.begin_batch RENAME TO gone"
	type example struct {
		args    river.JobArgs
		prepare func(t *testing.T) bundle
		line    string
		cause   string
	}
	pgtest.Each(t, map[string]example{
		LooseForeignKeys: {LooseForeignKeysCleanupArgs{Database: "main"}, func(t *testing.T) bundle {
			b := setup(t)
			b.db.Exec("DELETE FROM parents; " + noBatch)
			return b
		}, "level=ERROR msg=run_failed", "begin_batch"},
		GhostUsers: {MigrateRecordsToGhostUserArgs{}, func(t *testing.T) bundle {
			b := ghostBundle(t)
			b.db.Exec("SELECT sexton.delete_user(1, 2, false)")
			b.db.Exec(noBatch)
			return b
		}, "level=ERROR msg=run_failed", "begin_batch"},
		"configuration": {MigrateRecordsToGhostUserArgs{}, func(t *testing.T) bundle {
			b := ghostBundle(t)
			b.deps.Config = configuration(t, "SEXTON_GHOST_USERS__ENABLED=true",
				"SEXTON_GHOST_USERS__MOVE=[{table: isues, columns: [author_id]}]")
			return b
		}, `level=ERROR msg=kind_held`, "isues does not exist"},
		PlaceholderCleanup: {PlaceholderUserCleanupArgs{}, func(t *testing.T) bundle {
			b := placeholderBundle(t)
			b.db.Exec(noBatch)
			return b
		}, "level=ERROR msg=run_failed", "begin_batch"},
		DeletePlaceholder: {DeletePlaceholderUserArgs{UserID: 11}, func(t *testing.T) bundle {
			b := placeholderBundle(t)
			b.db.Exec("ALTER FUNCTION sexton.application_path RENAME TO gone")
			return b
		}, "level=ERROR msg=run_failed", "application_path"},
		AdjournedGroupDeletion: {AdjournedGroupDeletionArgs{}, func(t *testing.T) bundle {
			b := groupBundle(t)
			b.db.Exec(noBatch)
			return b
		}, "level=ERROR msg=run_failed", "begin_batch"},
		GroupDestroy: {
			GroupDestroyArgs{GroupID: dml.IntegerID(10), UserID: dml.IntegerID(1)},
			func(t *testing.T) bundle {
				b := destroyBundle(t)
				b.db.Exec("CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'kept for ever'; END $$")
				b.db.Exec("CREATE TRIGGER refuse BEFORE DELETE ON groups FOR EACH ROW EXECUTE FUNCTION refuse()")
				return b
			}, "level=ERROR msg=group_stuck", "kept for ever",
		},
		ScheduleExternalDiffs: {ScheduleExternalDiffsArgs{}, func(t *testing.T) bundle {
			b, _ := diffBundle(t)
			b.db.Exec(noBatch)
			return b
		}, "level=ERROR msg=run_failed", "begin_batch"},
		MigrateExternalDiff: {MigrateExternalDiffArgs{DiffID: 1}, func(t *testing.T) bundle {
			b, _ := diffBundle(t)
			b.db.Exec("ALTER TABLE merge_request_diff_files RENAME TO gone")
			return b
		}, "level=ERROR msg=run_failed", "merge_request_diff_files"},
		// The run has ended successfully, so only the error of the job reports the
		// failure.
		"completion of a job": {AdjournedGroupDeletionArgs{}, func(t *testing.T) bundle {
			b := groupBundle(t)
			b.db.Exec("CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'never completed'; END $$")
			b.db.Exec("CREATE TRIGGER refuse BEFORE UPDATE ON sexton.river_job FOR EACH ROW WHEN (NEW.state = 'completed') EXECUTE FUNCTION refuse()")
			return b
		}, "level=ERROR msg=job_failed", "never completed"},
	}, func(t *testing.T, _ string, c example) {
		b := c.prepare(t)
		require.Equal(t, river.EventKindJobFailed, b.workOne(t, c.args).Kind)
		var lines []string
		for line := range strings.Lines(b.log.String()) {
			// The statistics, which may contain the cause, are omitted.
			line, _, _ = strings.Cut(line, " stats=")
			if strings.Contains(line, c.cause) || strings.Contains(line, "run_failed") ||
				strings.Contains(line, "Job errored") {
				lines = append(lines, line)
			}
		}
		require.Len(t, lines, 1)
		require.Contains(t, lines[0], c.line)
	})
}

func TestGhostUsersHaveOneDatabase(t *testing.T) {
	t.Parallel()
	c := &config.Config{
		Databases: []config.Database{{Name: "main"}, {Name: "ci"}}, Jobs: config.Jobs{Database: "ci"},
		GhostUsers: config.GhostUsers{Enabled: true},
	}
	jobs := Jobs(c)
	require.Len(t, jobs, 1)
	require.Equal(t, []string{"ci"}, jobs[0].Databases)
}
