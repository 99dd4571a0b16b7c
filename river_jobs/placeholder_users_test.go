package riverjobs

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/riverqueue/river"
	"github.com/stretchr/testify/require"

	"sexton/internal/config"
	"sexton/internal/definitions"
	"sexton/internal/jobrun"
	"sexton/internal/lease"
	"sexton/internal/migrate"
	"sexton/internal/pgtest"
)

// placeholderBundle returns a bundle of the reference application with three placeholder
// users: 11 without an authored issue, 12 with one, and 13, whose group 2 still exists.
func placeholderBundle(t *testing.T, environ ...string) bundle {
	return newApplication(t, `
		INSERT INTO organizations (id, name, path) VALUES (1, 'o', 'o');
		INSERT INTO groups (id, name, path) VALUES (1, 'kept', 'kept'), (2, 'imported', 'imported');
		INSERT INTO projects (id, group_id, name, path) VALUES (1, 1, 'project', 'project');
		INSERT INTO users (id, username, email, name, user_type)
			SELECT id, 'p' || id, id || '@noreply.example.com', 'Placeholder ' || id, 15 FROM generate_series(11, 13) AS id;
		INSERT INTO issues (id, project_id, title, author_id) VALUES (1, 1, 'imported', 12);
		INSERT INTO events (project_id, author_id, action) VALUES (1, 11, 1);
		INSERT INTO merge_requests (id, target_project_id, title, last_edited_by_id, source_branch, target_branch) VALUES (1, 1, 'm', 11, 'a', 'b');
		INSERT INTO ci_pipelines (id, partition_id, project_id, user_id, ref, sha, status) VALUES (1, 100, 1, 11, 'main', 'x', 'success');
		INSERT INTO import_placeholder_user_details (id, placeholder_user_id, namespace_id, organization_id)
			SELECT id, id, CASE id WHEN 13 THEN 2 END, 1 FROM generate_series(11, 13) AS id;`, append([]string{
		"SEXTON_GHOST_USERS__ENABLED=true", "SEXTON_PLACEHOLDER_USERS__ENABLED=true",
		"SEXTON_PLACEHOLDER_USERS__SPACING=1ms",
	}, environ...)...)
}

// runClient runs a River client until the end of the test.
func (b bundle) runClient(t *testing.T) {
	_, stop := b.start(t)
	t.Cleanup(stop)
}

func (b bundle) waitFor(t *testing.T, what, condition string) {
	pgtest.Await(t, b.db.Pool(), what, "SELECT "+condition)
}

// A placeholder user without an owner is deleted by the jobs of three kinds in one
// process. A placeholder user with an issue is kept.
func TestPlaceholdersFromEndToEnd(t *testing.T) {
	t.Parallel()
	b := placeholderBundle(t)
	require.True(t, b.due(t, PlaceholderCleanup).Now)
	b.runClient(t)
	b.enqueue(t, PlaceholderUserCleanupArgs{})
	b.waitFor(t, "placeholder 11 to be queued",
		"EXISTS (SELECT FROM users_ghost_user_migrations WHERE user_id = 11 AND initiator_user_id = 11 AND NOT hard_delete)")
	b.waitFor(t, "placeholder 12 to be checked",
		"EXISTS (SELECT FROM import_placeholder_user_details WHERE last_error IS NOT NULL)")
	b.enqueue(t, MigrateRecordsToGhostUserArgs{})
	b.waitFor(t, "placeholder 11 to be deleted", "NOT EXISTS (SELECT FROM users WHERE id = 11)")
	b.waitFor(t, "all jobs to end", "NOT EXISTS (SELECT FROM sexton.river_job WHERE finalized_at IS NULL)")

	require.Equal(t, [][]string{
		{"12", "1", "still referenced by issues.author_id (id 1)"}, {"13", "0", "NULL"},
	}, b.db.Rows("SELECT placeholder_user_id, deletion_attempts, last_error FROM import_placeholder_user_details ORDER BY id"), "the row of 11 is deleted")
	require.Equal(t, [][]string{{"ghost"}},
		b.db.Rows("SELECT users.username FROM ci_pipelines JOIN users ON users.id = user_id"),
		"the pipeline belongs to the ghost user")
	require.Equal(t, [][]string{{"12"}}, b.db.Rows("SELECT author_id FROM issues"))
	require.Empty(t, b.db.Rows("SELECT FROM events"))
	require.Equal(t, [][]string{{"11"}},
		b.db.Rows("SELECT payload ->> 'initiator_user_id' FROM sexton.events WHERE kind = 'user_destroyed'"))
	require.False(t, b.due(t, PlaceholderCleanup).Now)
	require.InDelta(t, 48*time.Hour, b.due(t, PlaceholderCleanup).In, float64(time.Minute), "placeholder 12 is due after the retry period")

	require.Equal(t, [][]string{
		{"import_delete_placeholder_user", "done", "queued"}, {"import_placeholder_user_cleanup", "done", "2"},
	}, b.db.Rows(`SELECT kind, outcome, coalesce(stats ->> 'scheduled', stats ->> 'outcome') FROM sexton.runs
		WHERE changed AND kind ~ '^import' ORDER BY kind`))
	for _, line := range []string{
		"msg=placeholder_user_scheduled kind=import_placeholder_user_cleanup database=main placeholder_user_id=11 attempt=1 scheduled_at=",
		"msg=placeholder_user_queued kind=import_delete_placeholder_user database=main placeholder_user_id=11 outcome=queued",
		"level=WARN msg=placeholder_user_kept kind=import_delete_placeholder_user database=main placeholder_user_id=12 outcome=blocked " +
			`reason="still referenced by issues.author_id (id 1)" references="[{Column:issues.author_id Sample:id 1}]"`,
	} {
		require.Contains(t, b.log.String(), line)
	}
}

func TestLastAttemptIsLoggedAsWarning(t *testing.T) {
	t.Parallel()
	b := placeholderBundle(t)
	b.db.Exec("UPDATE import_placeholder_user_details SET deletion_attempts = id + 2")
	report := b.mustRun(t, PlaceholderUserCleanupArgs{})
	require.Contains(t, string(report.Stats), `"scheduled":2,"final_attempts":1,`)
	require.Contains(t, b.log.String(),
		`level=WARN msg="Maximum deletion attempts (15) reached for deletion of placeholder user. Making final deletion attempt." `+
			"kind=import_placeholder_user_cleanup database=main placeholder_user_id=12 attempt=15")
	require.NotContains(t, b.log.String(),
		`reached for deletion of placeholder user. Making final deletion attempt." kind=import_placeholder_user_cleanup database=main placeholder_user_id=11`)
	require.Equal(t, [][]string{{"14"}, {"15"}},
		b.db.Rows("SELECT deletion_attempts FROM import_placeholder_user_details WHERE namespace_id IS NULL ORDER BY 1"))
}

func TestFirstStartIsAfterPendingJobs(t *testing.T) {
	t.Parallel()
	b := placeholderBundle(t)
	startsIn := func(spacing time.Duration) float64 {
		start := pgtest.Must(b.db.Connected.Queries().JobsStart(t.Context(), spacing.Seconds(), DeletePlaceholder))(t)
		return start.Sub(pgtest.Scalar[time.Time](t, b.db.Database, "SELECT clock_timestamp()")).Seconds()
	}
	require.InDelta(t, 0, startsIn(time.Minute), 10, "no job is pending")
	b.db.Exec(`SELECT sexton.enqueue_new('import_delete_placeholder_user', jsonb_build_object('user_id', n), now() + n * interval '1 minute') FROM generate_series(1, 100) AS n`)
	require.InDelta(t, 101*60, startsIn(time.Minute), 10, "after the last pending job")
	b.db.Exec(`SELECT sexton.enqueue_new('import_delete_placeholder_user', '{"user_id": 999}', '2099-01-01Z')`)
	require.InDelta(t, 102*60, startsIn(time.Minute), 10, "a placeholder deferred for long does not delay others")
	b.db.Exec("UPDATE sexton.river_job SET state = 'retryable'")
	require.InDelta(t, 0, startsIn(time.Minute), 10, "failed jobs do not delay new ones")
}

// After a pass that failed for a row, wake-ups wait before they retry. The other rows are
// processed.
func TestFailedRowsAreRetriedAfterAPause(t *testing.T) {
	t.Parallel()
	b := placeholderBundle(t)
	b.db.Exec("CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'kept'; END $$")
	b.db.Exec("CREATE TRIGGER refuse BEFORE UPDATE OF deletion_attempts ON import_placeholder_user_details FOR EACH ROW WHEN (OLD.id = 11) EXECUTE FUNCTION refuse()")
	report, err := run(t.Context(), b.deps, PlaceholderUserCleanupArgs{})
	require.EqualError(t, err, "insert jobs for 1 placeholder users: SQLSTATE P0001: kept")
	require.Equal(t, jobrun.Failed, report.Outcome)
	require.Contains(t, string(report.Stats), `"scheduled":1,"final_attempts":0,"waiting":0,"changed":0,"failed":1,`)
	require.Equal(t, [][]string{{"12"}}, b.db.Rows("SELECT args ->> 'user_id' FROM sexton.river_job"))
	require.True(t, b.due(t, PlaceholderCleanup).Now, "row 11 is due")

	retryDelay := func() time.Duration {
		return pgtest.Must(untilRetried(t.Context(), b.db.Connected, PlaceholderCleanup, retryPause))(t)
	}
	require.Zero(t, retryDelay())
	b.enqueue(t, PlaceholderUserCleanupArgs{})
	require.Zero(t, retryDelay())
	const failed = "UPDATE sexton.river_job SET state = 'retryable', attempted_at = now(), scheduled_at = now() + $1::interval WHERE kind = 'import_placeholder_user_cleanup'"
	b.db.Exec(failed, "20 seconds")
	require.InDelta(t, 20*time.Second, retryDelay(), float64(10*time.Second), "the time of River's next attempt")
	b.db.Exec(failed, "1 hour")
	require.InDelta(t, time.Minute, retryDelay(), float64(10*time.Second), "at most retryPause, although River waits longer")
	b.db.Exec("UPDATE sexton.river_job SET attempted_at = scheduled_at")
	require.InDelta(t, time.Minute, retryDelay(), float64(10*time.Second), "at most retryPause, although the server's clock was set back")
}

// If the database refuses the deletion, River retries the job without counting an attempt
// at the placeholder user.
func TestDeletionThatFailsIsRetried(t *testing.T) {
	t.Parallel()
	b := placeholderBundle(t)
	b.db.Exec("ALTER TABLE notes RENAME TO away")
	_, err := run(t.Context(), b.deps, DeletePlaceholderUserArgs{UserID: 11})
	require.ErrorContains(t, err, "table public.notes does not exist")
	require.Empty(t, b.db.Rows("SELECT FROM users_ghost_user_migrations"),
		"a table that cannot be read may refer to any user")
	b.db.Exec("ALTER TABLE away RENAME TO notes")
	b.db.Exec("CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'not yet'; END $$")
	b.db.Exec("CREATE TRIGGER refuse BEFORE INSERT ON users_ghost_user_migrations FOR EACH ROW EXECUTE FUNCTION refuse()")
	b.runClient(t)
	b.enqueue(t, DeletePlaceholderUserArgs{UserID: 11})
	b.waitFor(t, "the job to fail",
		"EXISTS (SELECT FROM sexton.river_job WHERE kind = 'import_delete_placeholder_user' AND state IN ('retryable', 'available') AND cardinality(errors) > 0)")
	b.db.Exec("DROP FUNCTION refuse CASCADE")
	b.db.Exec("UPDATE sexton.river_job SET scheduled_at = now(), state = 'available' WHERE finalized_at IS NULL")
	b.waitFor(t, "the retry", "EXISTS (SELECT FROM users_ghost_user_migrations WHERE user_id = 11)")
	require.Equal(t, [][]string{{"0"}},
		b.db.Rows("SELECT deletion_attempts FROM import_placeholder_user_details WHERE id = 11"),
		"only the other job counts attempts")
}

// If pending tombstones may delete the rows that refer to a placeholder user, the job is
// deferred without counting an attempt.
func TestTombstonesDelayADeletion(t *testing.T) {
	t.Parallel()
	b := placeholderBundle(t, "SEXTON_LOOSE_FOREIGN_KEYS__ENABLED=true")
	name := func(table string) definitions.Name { return definitions.Name{Table: table} }
	b.deps.Definitions = []definitions.Definition{{
		Child: name("projects"), Columns: []string{"group_id"},
		Parent: name("groups"), OnDelete: definitions.Delete,
	}}
	run := func() (outcome, reason string) {
		report := b.mustRun(t, DeletePlaceholderUserArgs{UserID: 12})
		var stats struct{ Outcome, Reason string }
		require.NoError(t, json.Unmarshal(report.Stats, &stats))
		return stats.Outcome, stats.Reason
	}
	outcome, reason := run()
	require.Equal(t, "blocked", outcome)
	require.Equal(t, "still referenced by issues.author_id (id 1)", reason)
	b.db.Exec("INSERT INTO loose_foreign_keys_deleted_records (fully_qualified_table_name, primary_key_value) VALUES ('public.elsewhere', 1)")
	outcome, _ = run()
	require.Equal(t, "blocked", outcome, "tombstones of another table")

	// Projects are loose children of groups, and issues are native children of projects.
	b.db.Exec("INSERT INTO loose_foreign_keys_deleted_records (fully_qualified_table_name, primary_key_value) VALUES ('public.groups', 1)")
	outcome, reason = run()
	require.Equal(t, "delayed", outcome)
	require.Equal(t, "tombstones of public.groups are pending; still referenced by issues.author_id (id 1)", reason)
	b.runClient(t)
	b.enqueue(t, DeletePlaceholderUserArgs{UserID: 12})
	const job = "sexton.river_job WHERE kind = 'import_delete_placeholder_user'"
	b.waitFor(t, "the job to be deferred", "EXISTS (SELECT FROM "+job+" AND state = 'scheduled' AND attempt = 0)")
	b.db.Exec("DELETE FROM loose_foreign_keys_deleted_records; DELETE FROM issues")
	b.db.Exec("UPDATE sexton.river_job SET scheduled_at = now(), state = 'available' WHERE finalized_at IS NULL")
	b.waitFor(t, "the second check", "EXISTS (SELECT FROM users_ghost_user_migrations WHERE user_id = 12)")
}

// Pending tombstones delay a deletion for the retry period at most.
func TestTombstonesDelayADeletionForTheRetryPeriod(t *testing.T) {
	t.Parallel()
	b := placeholderBundle(t, "SEXTON_LOOSE_FOREIGN_KEYS__ENABLED=true")
	b.db.Exec("INSERT INTO loose_foreign_keys_deleted_records (fully_qualified_table_name, primary_key_value) VALUES ('public.projects', 1)")
	b.enqueue(t, DeletePlaceholderUserArgs{UserID: 12})
	b.db.Exec("UPDATE sexton.river_job SET created_at = now() - interval '49 hours'")
	b.runClient(t)
	b.waitFor(t, "the job to end", "EXISTS (SELECT FROM sexton.river_job WHERE state = 'completed')")
	require.Equal(t, [][]string{{"blocked"}},
		b.db.Rows("SELECT stats ->> 'outcome' FROM sexton.runs WHERE kind = 'import_delete_placeholder_user'"))
}

func TestDeletionOfOtherUsersDoesNothing(t *testing.T) {
	t.Parallel()
	b := placeholderBundle(t)
	b.db.Exec("UPDATE users SET user_type = 0 WHERE id = 13")
	for user, outcome := range map[int64]string{99: "gone", 13: "no_placeholder"} {
		report := b.mustRun(t, DeletePlaceholderUserArgs{UserID: user})
		require.Equal(t, jobrun.Done, report.Outcome)
		require.Contains(t, string(report.Stats), `"outcome":"`+outcome+`"`)
	}
	require.NotContains(t, b.log.String(), "level=WARN")
	require.NotContains(t, b.log.String(), "level=ERROR")
	require.Equal(t, [][]string{{"f"}}, b.db.Rows("SELECT DISTINCT changed FROM sexton.runs"))
}

func TestPausedPlaceholdersAreNotDue(t *testing.T) {
	t.Parallel()
	b := placeholderBundle(t)
	b.db.Exec("INSERT INTO sexton.river_queue (name, paused_at, updated_at) VALUES ($1, now(), now())",
		PlaceholderCleanup)
	require.False(t, b.due(t, PlaceholderCleanup).Now)
}

func TestPlaceholderLeaseIsRespected(t *testing.T) {
	t.Parallel()
	b := placeholderBundle(t)
	other := lease.Manager{Jobs: b.db.Connected, Holder: "somebody"}
	pgtest.Must(other.Acquire(t.Context(), "import/placeholder_user_cleanup_worker", time.Minute))(t)
	report := b.mustRun(t, PlaceholderUserCleanupArgs{})
	require.Equal(t, jobrun.Skipped, report.Outcome)
	require.Equal(t, "somebody", report.Holder)
	require.Empty(t, b.db.Rows("SELECT FROM sexton.river_job"))
	_, err := Jobs(b.deps.Config)[1].Run(t.Context(), b.deps, Pass{Database: "ci"})
	require.ErrorContains(t, err, "it works in the jobs database, which is main")
}

// If an open transaction has enqueued the job of a placeholder user, the pass does not
// fail. A later pass inserts the job.
func TestOpenEnqueueOfOnePlaceholderDoesNotFailThePass(t *testing.T) {
	t.Parallel()
	b := placeholderBundle(t)
	open := pgtest.Begin(t, b.db.Pool(), `SELECT sexton.enqueue('import_delete_placeholder_user', '{"user_id": 11}')`)
	require.Equal(t, jobrun.Done, pgtest.Must(run(t.Context(), b.deps, PlaceholderUserCleanupArgs{}))(t).Outcome)
	require.Equal(t, [][]string{{"0", "1"}},
		b.db.Rows("SELECT stats ->> 'failed', stats ->> 'changed' FROM sexton.runs"))
	require.NoError(t, open.Rollback(t.Context()))
	pgtest.Must(run(t.Context(), b.deps, PlaceholderUserCleanupArgs{}))(t)
	require.Equal(t, [][]string{{"1"}},
		b.db.Rows("SELECT count(*) FROM sexton.river_job WHERE args ->> 'user_id' = '11'"))
}

func TestPlaceholderKinds(t *testing.T) {
	t.Parallel()
	c := configuration(t, "SEXTON_GHOST_USERS__ENABLED=true", "SEXTON_PLACEHOLDER_USERS__ENABLED=true",
		"SEXTON_LOOSE_FOREIGN_KEYS__ENABLED=false")
	jobs := Jobs(c)
	require.Len(t, jobs, 3)
	cleanup, child := jobs[1], jobs[2]
	require.Equal(t, "0 0 * * *", cleanup.Schedule)
	require.Equal(t, []string{c.Jobs.Database}, cleanup.Databases)
	require.True(t, child.Inserted())
	require.Equal(t, 20, child.MaxWorkers)
	require.Equal(t, []migrate.Kind{
		{
			Kind: "import_placeholder_user_cleanup", Queue: "import_placeholder_user_cleanup", Cron: true,
			MaxAttempts: 25,
			Args:        map[string]string{}, Defaults: map[string]any{},
		},
		{
			Kind: "import_delete_placeholder_user", Queue: "import_delete_placeholder_user", MaxAttempts: 25,
			Args: map[string]string{"user_id": "bigint"}, Defaults: map[string]any{},
			Row: migrate.Row{
				Table: "import_placeholder_user_details", Column: "placeholder_user_id",
				Argument: "user_id",
			},
		},
	}, Kinds(c)[1:])
	require.Empty(t, Jobs(&config.Config{}))
	for _, args := range []river.JobArgsWithInsertOpts{PlaceholderUserCleanupArgs{}, DeletePlaceholderUserArgs{}} {
		require.True(t, args.InsertOpts().UniqueOpts.ByArgs, "%T", args)
		require.Equal(t, 25, args.InsertOpts().MaxAttempts, "%T", args)
	}
}
