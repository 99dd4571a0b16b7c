package operator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/components"
	"sexton/internal/config"
	"sexton/internal/database"
	"sexton/internal/dbsqlc"
	"sexton/internal/dbtest"
	"sexton/internal/installation"
	"sexton/internal/pgtest"
	"sexton/internal/web"
	riverjobs "sexton/river_jobs"
)

// failingSite returns the reference application with failed rows in every deletion table
// except the tombstones.
func failingSite(t *testing.T) (*dbtest.DB, *installation.Connections) {
	db := dbtest.Reference(t)
	c := &config.Config{}
	c.GhostUsers.Enabled, c.AdjournedGroups.Enabled, c.ExternalDiffs.Enabled = true, true, true
	c.PlaceholderUsers.Enabled, c.PlaceholderUsers.MaxAttempts, c.PlaceholderUsers.RetryPeriod = true, 15, 48*time.Hour
	c.GhostUsers.Schedule, c.PlaceholderUsers.Schedule, c.AdjournedGroups.Schedule,
		c.ExternalDiffs.Schedule = "* * * * *", "0 0 * * *", "0 2 * * *", "15 * * * *"
	c.ExternalDiffs.When = "always"
	c.Jobs.Database = "main"
	c.Databases = []config.Database{{Name: "main"}}
	all := &installation.Connections{Config: c, Databases: []database.Database{db.Connected}}
	for _, kind := range riverjobs.Kinds(c) {
		db.Exec(`INSERT INTO sexton.job_kinds (kind, queue, args, defaults, cron, max_attempts) VALUES ($1, $2, $3, '{}', $4, $5)
			ON CONFLICT (kind) DO NOTHING`, kind.Kind, kind.Queue, kind.Args, kind.Cron, kind.MaxAttempts)
	}
	db.Exec(`
		INSERT INTO application_settings (deletion_adjourned_period) VALUES (7);
		INSERT INTO organizations (id, name, path) VALUES (1, 'o', 'o');
		INSERT INTO users (id, username, email, name, user_type)
			SELECT id, 'p' || id, id || '@noreply.example.com', 'Placeholder ' || id, CASE WHEN id > 10 THEN 15 ELSE 0 END FROM generate_series(9, 11) AS id;
		INSERT INTO import_placeholder_user_details (placeholder_user_id, organization_id, deletion_attempts, last_deletion_attempt_at, last_error)
			VALUES (11, 1, 15, now() - interval '9 days', 'kept by a note');
		INSERT INTO users_ghost_user_migrations (user_id, consume_after, attempts, last_error) VALUES (9, now() + interval '1 hour', 2, 'issues: 23514');
		INSERT INTO groups (id, name, path, marked_for_deletion_on)
			SELECT id, 'g' || id, 'g' || id, current_date - 30 FROM generate_series(1, 4) AS id;
		INSERT INTO group_deletion_schedules (group_id, user_id, marked_for_deletion_on) SELECT id, 10, current_date - 30 FROM generate_series(1, 4) AS id;
		INSERT INTO sexton.group_destructions (group_id, user_id, attempts, last_error) VALUES (1, 10, 6, 'rows refer to it'), (2, 10, 25, 'others do'), (4, 10, 0, NULL);
		INSERT INTO sexton.group_deletion_failures (group_id, attempts, last_error, retry_at) VALUES (3, 3, 'nothing can be decided', now() + interval '2 hours');
		INSERT INTO sexton.river_job (kind, queue, args, max_attempts, attempt, state, scheduled_at, finalized_at, errors) VALUES
			('group_destroy', 'group_destroy', '{"group_id": 1, "user_id": 10}', 25, 6, 'retryable', now() + interval '3 hours', NULL, ARRAY['{"error": "of the job"}'::jsonb]),
			('group_destroy', 'group_destroy', '{"group_id": 2, "user_id": 10}', 25, 25, 'discarded', now(), now(), ARRAY['{"error": "of the job"}'::jsonb]),
			('group_destroy', 'group_destroy', '{"group_id": 4, "user_id": 10}', 25, 1, 'retryable', now() + interval '1 hour', NULL, ARRAY['{"error": "no connection"}'::jsonb]),
			('migrate_external_diff', 'migrate_external_diff', '{"diff_id": 2}', 3, 3, 'discarded', now(), now(), ARRAY['{"error": "once"}'::jsonb, '{"error": "thrice"}']),
			('migrate_external_diff', 'migrate_external_diff', '{"diff_id": 4}', 3, 3, 'discarded', now(), now(), ARRAY['{"error": "moved since"}'::jsonb]);
		SELECT sexton.enqueue('migrate_external_diff', '{"diff_id": 1}');
		UPDATE sexton.river_job SET state = 'retryable', attempt = 2, scheduled_at = now() + interval '1 hour', errors = ARRAY['{"error": "it broke"}'::jsonb]
			WHERE args ->> 'diff_id' = '1';
		INSERT INTO projects (id, group_id, name, path) VALUES (1, 1, 'project', 'project');
		INSERT INTO merge_requests (id, target_project_id, title, source_branch, target_branch) VALUES (7, 1, 'title', 'branch', 'main');
		INSERT INTO merge_request_diffs (id, merge_request_id, project_id, files_count, stored_externally)
			SELECT id, 7, 1, 1, id = 4 FROM generate_series(1, 4) AS id;
		INSERT INTO sexton.external_diffs (diff_id, skip_reason, skipped_at) VALUES (3, 'files_missing', now())`)
	return db, all
}

func TestFailedRowsAreListedWithReasons(t *testing.T) {
	t.Parallel()
	_, all := failingSite(t)
	now := time.Now()
	next := map[string]time.Duration{
		"group 1 (g1), its destruction": 3 * time.Hour, "group 3 (g3)": 2 * time.Hour,
		"diff 1": time.Hour,
	}
	var shown []string
	for _, source := range sources(all) {
		failures, more := pgtest.Must2(source.List(t.Context(), all, 10))(t)
		require.False(t, more)
		for _, f := range failures {
			require.Equal(t, source.Name, f.Source)
			shown = append(shown, strings.Join([]string{f.Source, f.ID, f.What, f.Error}, " | "))
			if in := next[f.What]; in > 0 {
				require.WithinDuration(t, now.Add(in), f.Next, time.Minute, f.What)
			}
			require.Equal(t, f.Source == "placeholders", f.GivenUp, f.What)
		}
	}
	require.Equal(t, []string{
		"users | 9 | user 9 | issues: 23514", "placeholders | 11 | placeholder user 11 | kept by a note",
		"groups | 2 | group 2 (g2), its destruction | others do",
		"groups | 1 | group 1 (g1), its destruction | rows refer to it",
		"groups | 3 | group 3 (g3) | nothing can be decided",
		"diffs | 1 | diff 1 | it broke", "diffs | 2 | diff 2 | thrice", "diffs | 3 | diff 3 | skipped: files missing",
		"jobs | 3 | job 3, group_destroy | no connection",
	}, shown, "jobs whose rows are listed are omitted")

	failures, more := pgtest.Must2(sourceOf(t, all, "groups").List(t.Context(), all, 2))(t)
	require.True(t, more)
	require.Len(t, failures, 2)
}

// Failures that differ only in keys and process IDs share one reason. Rows that wait for
// a lock are listed last.
func TestReasonsOfFailures(t *testing.T) {
	t.Parallel()
	at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	failure := func(id, text string, since time.Time) components.Failure {
		return components.Failure{Source: "tombstones", Database: "main", ID: id, Error: text, Since: since}
	}
	const broken = "invoices_2: SQLSTATE 23503: violates a constraint: Key (id)=(%s) is still referenced"
	f := Failures{Failures: []components.Failure{
		failure("1", "notes: SQLSTATE 55P03: held by pid 17", at),
		failure("2", "notes: SQLSTATE 55P03: held by pid 18", at),
		failure("3", "notes: SQLSTATE 55P03: held by pid 19", at),
		failure("4", fmt.Sprintf(broken, "7"), at.Add(time.Hour)),
		failure("5", fmt.Sprintf(broken, "6ba7b810-9dad"), at),
		failure("6", "invoices_3: SQLSTATE 23503: violates a constraint: Key (id)=(7) is still referenced",
			time.Time{}),
		failure("8", "still referenced by notes.author_id (id 200)", at),
		failure("9", "still referenced by notes.author_id (id 1800)", at),
		failure("7", "invoices_2: SQLSTATE 23514: violates a constraint: Key (id)=(7) is still referenced", at),
	}}
	var grouped []string
	for _, reason := range f.Reasons() {
		var ids []string
		for _, one := range reason.Failures {
			ids = append(ids, one.ID)
		}
		grouped = append(grouped, fmt.Sprintf("%s %v", strings.Join(ids, "+"), reason.Locked))
	}
	require.Equal(t, []string{"4+5 false", "8+9 false", "6 false", "7 false", "1+2+3 true"}, grouped)
	first := f.Reasons()[0]
	require.Equal(t, []time.Time{at, at.Add(time.Hour)}, []time.Time{first.First, first.Last})
	require.Len(t, first.Key, 12)
}

func TestRetryRowsOfOneReason(t *testing.T) {
	t.Parallel()
	db, all := failingSite(t)
	db.Exec("INSERT INTO users (id, username, email, name) VALUES (7, 'u7', '7@example.com', 'U'), (8, 'u8', '8@example.com', 'U')")
	db.Exec(`INSERT INTO users_ghost_user_migrations (user_id, consume_after, attempts, last_error) VALUES
		(7, now() + interval '1 hour', 2, 'issues: 23514'), (8, now() + interval '1 hour', 2, 'notes: 23503')`)
	source := NewPageSource(&installation.Bound{Connections: all}, &riverjobs.Bindings{}, slog.New(slog.DiscardHandler))
	reasons := pgtest.Must(ReadFailures(t.Context(), all, components.FailureWindow))(t).Reasons()
	require.Equal(t, "users", reasons[0].Source, "the reason with two rows is listed first")
	message := pgtest.Must(source.Retry(t.Context(), web.Visitor{Actor: "ann"},
		components.Retry{Reason: reasons[0].Key}))(t)
	require.Equal(t, "2 rows due now", message)
	require.Equal(t, [][]string{{"7"}, {"9"}},
		db.Rows("SELECT user_id FROM users_ghost_user_migrations WHERE consume_after <= now() ORDER BY 1"))
	require.Equal(t, [][]string{{"ann", "users 7"}, {"ann", "users 9"}},
		db.Rows("SELECT actor, target FROM sexton.audit ORDER BY 2"))
	_, err := source.Retry(t.Context(), web.Visitor{}, components.Retry{Reason: "unknown"})
	var refused *components.RefusedError
	require.ErrorAs(t, err, &refused)
}

// RunNow ignores the schedule. CancelGroup restores a scheduled group for a user who may
// remove it.
func TestRunNowAndCancelFromThePage(t *testing.T) {
	t.Parallel()
	db, all := failingSite(t)
	source, ann := NewPageSource(&installation.Bound{Connections: all}, &riverjobs.Bindings{},
		slog.New(slog.DiscardHandler)), web.Visitor{Actor: "ann"}
	var refused *components.RefusedError
	require.NoError(t, source.RunNow(t.Context(), ann, riverjobs.AdjournedGroupDeletion))
	require.Equal(t, [][]string{{"1"}}, db.Rows("SELECT count(*) FROM sexton.river_job WHERE kind = $1",
		riverjobs.AdjournedGroupDeletion))
	require.ErrorAs(t, source.RunNow(t.Context(), ann, riverjobs.GroupDestroy), &refused, "another kind inserts this job")
	require.NoError(t, source.SetPaused(t.Context(), ann, riverjobs.AdjournedGroupDeletion, "backup", true))
	require.ErrorAs(t, source.RunNow(t.Context(), ann, riverjobs.AdjournedGroupDeletion), &refused)

	db.Exec("UPDATE users SET admin = true WHERE id = 10")
	require.ErrorAs(t, source.CancelGroup(t.Context(), ann, "3", "ann"), &refused, "the user ID is not a number")
	require.ErrorAs(t, source.CancelGroup(t.Context(), ann, "3", "9"), &refused, "the user may not remove the group")
	require.NoError(t, source.CancelGroup(t.Context(), ann, "3", "10"))
	require.Equal(t, [][]string{{"t"}}, db.Rows("SELECT marked_for_deletion_on IS NULL FROM groups WHERE id = 3"))
	require.ErrorAs(t, source.CancelGroup(t.Context(), ann, "3", "10"), &refused, "the group is no longer scheduled")
	require.Equal(t, [][]string{{"run"}, {"pause"}, {"cancel"}}, db.Rows("SELECT action FROM sexton.audit ORDER BY id"))
}

// The retry buttons make failed rows due immediately.
func TestRetryFailedRows(t *testing.T) {
	t.Parallel()
	db, all := failingSite(t)
	source := NewPageSource(&installation.Bound{Connections: all}, &riverjobs.Bindings{}, slog.New(slog.DiscardHandler))
	retry := func(of, id string) string {
		message, err := source.Retry(t.Context(), web.Visitor{}, components.Retry{Source: of, ID: id})
		var refused *components.RefusedError
		require.True(t, err == nil || errors.As(err, &refused), err)
		if refused != nil {
			return refused.Reason
		}
		return message
	}

	const due = `SELECT kind, coalesce(args ->> 'group_id', args ->> 'diff_id') FROM sexton.river_job
		WHERE state = 'available' AND scheduled_at <= now() ORDER BY 1, 2`
	require.Contains(t, retry("groups", "1"), "1 group due now")
	require.Equal(t, [][]string{{"group_destroy", "1"}}, db.Rows(due), "the pending job is made due")
	require.Contains(t, retry("groups", "2"), "1 group due now")
	require.Equal(t, [][]string{{"group_destroy", "1"}, {"group_destroy", "2"}}, db.Rows(due),
		"a new job is inserted if the last one has ended")
	require.Contains(t, retry("groups", "3"), "1 group due now")
	require.Equal(t, [][]string{{"t"}}, db.Rows("SELECT retry_at <= now() FROM sexton.group_deletion_failures"))
	require.Contains(t, retry("groups", "4"), "group 4 has not failed")
	require.Contains(t, retry("groups", ""), "3 groups due now")
	require.Len(t, db.Rows(due), 2, "a second retry changes nothing")

	require.Contains(t, retry("diffs", "3"), "1 diff due now")
	require.Contains(t, retry("diffs", "4"), "diff 4 is not in the database")
	require.Contains(t, retry("diffs", ""), "3 diffs due now")
	require.Equal(t, [][]string{
		{"group_destroy", "1"},
		{"group_destroy", "2"},
		{"migrate_external_diff", "1"},
		{"migrate_external_diff", "2"},
		{"migrate_external_diff", "3"},
	}, db.Rows(due))
	require.Len(t, db.Rows("SELECT FROM sexton.river_job WHERE args ->> 'diff_id' = '1'"), 1, "no second job is inserted")
	require.Contains(t, retry("users", "9"), "1 user due now")
	require.Contains(t, retry("placeholders", "11"), "placeholder user 11: due now")
	require.Equal(t, [][]string{{"t", "0"}},
		db.Rows(`SELECT consume_after <= now(), deletion_attempts FROM users_ghost_user_migrations, import_placeholder_user_details`))
	require.Equal(t, [][]string{
		{"groups 1"},
		{"groups 2"},
		{"groups 3"},
		{"all groups"},
		{"diffs 3"},
		{"all diffs"},
		{"users 9"},
		{"placeholders 11"},
	},
		db.Rows("SELECT target FROM sexton.audit ORDER BY id"))
}

func TestKeptPlaceholdersAreListed(t *testing.T) {
	t.Parallel()
	db := dbtest.Reference(t)
	c := &config.Config{}
	c.PlaceholderUsers.Enabled, c.PlaceholderUsers.MaxAttempts, c.PlaceholderUsers.RetryPeriod = true, 15, 48*time.Hour
	c.Jobs.Database = "main"
	c.Databases = []config.Database{{Name: "main"}}
	all := &installation.Connections{Config: c, Databases: []database.Database{db.Connected}}
	db.Exec(`
		INSERT INTO organizations (id, name, path) VALUES (1, 'o', 'o');
		INSERT INTO users (id, username, email, name, user_type)
			SELECT id, 'p' || id, id || '@noreply.example.com', 'Placeholder ' || id, 15 FROM generate_series(11, 14) AS id;
		INSERT INTO import_placeholder_user_details (id, placeholder_user_id, organization_id, deletion_attempts, last_deletion_attempt_at, last_error)
		VALUES (1, 11, 1, 15, now() - interval '9 days', 'kept by a note'), (2, 12, 1, 3, now() - interval '1 day', 'kept by an issue'),
			(3, 13, 1, 14, now() - interval '1 hour', 'kept by a snippet'), (4, 14, 1, 0, NULL, NULL)`)
	source := sourceOf(t, all, "placeholders")

	failures, more, err := source.List(t.Context(), all, 2)
	require.NoError(t, err)
	require.True(t, more)
	require.WithinDuration(t, time.Now().Add(-9*24*time.Hour), failures[0].Since, time.Minute)
	failures[0].Since = time.Time{}
	require.Equal(t, components.Failure{
		Source: "placeholders", ID: "11", What: "placeholder user 11", Error: "kept by a note", Attempts: 15,
		GivenUp: true,
	}, failures[0])
	require.Equal(t, "placeholder user 13", failures[1].What)
	require.WithinDuration(t, time.Now().Add(47*time.Hour), failures[1].Next, time.Minute)
}

// sourceOf returns the failures of the source with this name.
func sourceOf(t *testing.T, all *installation.Connections, name string) *components.Failures {
	for _, source := range sources(all) {
		if source.Name == name {
			return source
		}
	}
	require.Fail(t, "no such source", name)
	return nil
}

// QueueStates returns one row per queue and job state, ordered by name, and stops
// counting at the cap.
func TestQueueStates(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	readStates := func(most int32) [][]string {
		rows := pgtest.Must(db.Connected.Queries().QueueStates(t.Context(), most, []string{cleanUp, "unknown"}))(t)
		var found [][]string
		for _, row := range rows {
			since := ""
			if row.Since != nil {
				since = row.Since.UTC().Format(time.DateOnly)
			}
			found = append(found, []string{
				row.Queue, strconv.FormatBool(row.Paused), since, row.State,
				strconv.FormatInt(row.Jobs, 10),
			})
		}
		return found
	}
	states := []string{"available", "discarded", "pending", "retryable", "running", "scheduled"}
	var none [][]string
	for _, queue := range []string{cleanUp, "unknown"} {
		for _, state := range states {
			none = append(none, []string{queue, "false", "", state, "0"})
		}
	}
	require.Equal(t, none, readStates(10))

	db.Exec("INSERT INTO sexton.river_queue (name, paused_at, created_at, updated_at) VALUES ($1, now(), '2024-02-29Z', now())", cleanUp)
	db.Exec(`INSERT INTO sexton.river_job (args, kind, max_attempts, queue, state, finalized_at, scheduled_at)
		SELECT '{}', 'some', 1, $1, state::sexton.river_job_state, CASE WHEN state IN ('completed', 'discarded') THEN now() END, now()
		FROM unnest('{available,available,available,running,scheduled,completed,discarded}'::text[]) AS state`, cleanUp)
	for i, counted := range []string{"2", "1", "0", "0", "1", "1"} {
		require.Equal(t, []string{cleanUp, "true", "2024-02-29", states[i], counted}, readStates(2)[i])
	}
}

// explained runs EXPLAIN of each query in place of the query, and stores the plans.
type explained struct {
	dbsqlc.DBTX

	plan *[]string
}

func (e explained) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	rows, err := e.DBTX.Query(ctx, "EXPLAIN "+sql, args...)
	if err == nil {
		*e.plan, err = pgx.CollectRows(rows, pgx.RowTo[string])
	}
	return rows, err
}

// QueueStates uses an index, although the jobs table was not vacuumed and has few
// distinct states.
func TestQueueStatesDoNotScan(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	db.Exec("ALTER TABLE sexton.river_job SET (autovacuum_enabled = off)")
	db.Exec(`INSERT INTO sexton.river_job (kind, queue, args, state, max_attempts, scheduled_at, finalized_at)
		SELECT $1, $1, '{}', 'discarded', 1, now(), now() FROM generate_series(1, 10000)`, cleanUp)
	db.Exec("ANALYZE sexton.river_job")
	var plan []string
	queries := db.Connected.Names.Queries(explained{db.Pool(), &plan})
	pgtest.Must(queries.QueueStates(t.Context(), 2_000, []string{cleanUp, "unknown"}))(t)
	require.NotEmpty(t, plan)
	require.NotContains(t, strings.Join(plan, "\n"), "Seq Scan on river_job")
}

func TestStalledJobsAreListed(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	of := riverjobs.Job{Kind: cleanUp, Cron: "* * * * *", Schedule: "* * * * *"}
	readStalled := func() string {
		return pgtest.Must(stalled(t.Context(), db.Connected, 15*time.Second, of, "main"))(t)
	}
	require.Empty(t, readStalled())
	db.Exec(`INSERT INTO sexton.river_job (id, args, kind, queue, state, max_attempts, attempted_by, attempted_at, scheduled_at)
		VALUES (7, '{"database": "main"}', $1, $1, 'available', 1, '{me}', now(), now())`, cleanUp)
	require.Empty(t, readStalled(), "the job is new")
	db.Exec("UPDATE sexton.river_job SET scheduled_at = '2026-01-02T03:04:05Z'")
	require.Equal(t, "a worker: none has fetched job 7, available since 2026-01-02T03:04:05Z", readStalled())
	db.Exec("UPDATE sexton.river_job SET state = 'running', attempted_at = '2026-01-02T03:04:06Z'")
	const lost = "worker me: its job 7 has been marked as running since 2026-01-02T03:04:06Z, but has no run"
	require.Equal(t, lost, readStalled())
	db.Exec("INSERT INTO sexton.runs (kind, database, holder) VALUES ($1, 'main', 'me')", cleanUp)
	require.Equal(t, lost, readStalled(), "the worker of the run is dead")
	db.Exec("INSERT INTO sexton.clients (client_id, host, pid, started_at, seen_at) VALUES ('me', 'host', 1, now(), now())")
	require.Empty(t, readStalled(), "a worker is processing it")
	const silent = "UPDATE sexton.clients SET seen_at = now() - interval '20 seconds'"
	db.Exec(silent)
	require.Equal(t, lost, readStalled(), "the worker is dead, and no other worker has freed the job")
	db.Exec("UPDATE sexton.clients SET seen_at = now()")

	of = riverjobs.Job{Kind: riverjobs.GroupDestroy}
	db.Exec(`DELETE FROM sexton.river_job; DELETE FROM sexton.runs;
		INSERT INTO sexton.river_job (id, args, kind, queue, state, max_attempts, scheduled_at)
		VALUES (8, '{"group_id": 1}', 'group_destroy', 'group_destroy', 'available', 1, '2026-01-02T03:04:05Z')`)
	const unfetched = "a worker: none has fetched job 8, available since 2026-01-02T03:04:05Z"
	require.Equal(t, unfetched, readStalled(), "jobs that another kind inserts are reported too")
	db.Exec("INSERT INTO sexton.runs (kind, database, holder) VALUES ('group_destroy', 'main', 'me')")
	require.Empty(t, readStalled(), "a worker processes other jobs of the kind")
	db.Exec(silent)
	require.Equal(t, unfetched, readStalled(), "the worker sent no heartbeat lately")
	db.Exec("DELETE FROM sexton.clients")
	require.Equal(t, unfetched, readStalled(), "the worker of that run is dead")
	db.Exec("UPDATE sexton.runs SET outcome = 'done', ended_at = now()")
	require.Empty(t, readStalled(), "a run has just ended")
	db.Exec("UPDATE sexton.runs SET started_at = now() - interval '2 minutes', ended_at = now() - interval '1 minute'")
	require.Equal(t, unfetched, readStalled())
}
