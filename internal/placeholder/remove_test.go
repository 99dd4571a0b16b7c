package placeholder_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/batch"
	"sexton/internal/dbtest"
	"sexton/internal/pgtest"
	"sexton/internal/placeholder"
)

// setupScene creates the placeholder 1, and user 2 with rows that do not refer to user 1.
func setupScene(t *testing.T) *bundle {
	b := setup(t)
	b.placeholders(1)
	b.Exec(`
		INSERT INTO users (id, username, email, name) VALUES (2, 'ben', 'ben@example.com', 'Ben');
		INSERT INTO issues (id, project_id, title, author_id) VALUES (11, 1, 'by Ben', 2);
		INSERT INTO merge_requests (id, target_project_id, title, author_id, source_branch, target_branch) VALUES (12, 1, 'by Ben', 2, 'a', 'b');
		INSERT INTO merge_request_metrics (id, merge_request_id) VALUES (13, 12);
		INSERT INTO labels (id, project_id, title, color) VALUES (14, 1, 'label', '#000000');`)
	return b
}

// writes returns SQL statements that each make one column refer to user 1. Their map keys
// are the column and the row that Remove must report.
func writes() map[string]string {
	return map[string]string{
		"notes.author_id (id 17)":                           "INSERT INTO notes (id, project_id, noteable_type, noteable_id, author_id, note) VALUES (17, 1, 'Issue', 11, 1, 'n')",
		"issues.author_id (id 11)":                          "UPDATE issues SET author_id = 1",
		"issues.updated_by_id (id 11)":                      "UPDATE issues SET updated_by_id = 1",
		"issues.closed_by_id (id 11)":                       "UPDATE issues SET closed_by_id = 1",
		"issues.last_edited_by_id (id 11)":                  "UPDATE issues SET last_edited_by_id = 1",
		"merge_requests.author_id (id 12)":                  "UPDATE merge_requests SET author_id = 1",
		"merge_requests.updated_by_id (id 12)":              "UPDATE merge_requests SET updated_by_id = 1",
		"merge_requests.merge_user_id (id 12)":              "UPDATE merge_requests SET merge_user_id = 1",
		"issue_assignees.user_id (issue_id 11, user_id 1)":  "INSERT INTO issue_assignees VALUES (11, 1)",
		"merge_request_metrics.merged_by_id (id 13)":        "UPDATE merge_request_metrics SET merged_by_id = 1",
		"merge_request_metrics.latest_closed_by_id (id 13)": "UPDATE merge_request_metrics SET latest_closed_by_id = 1",
		"merge_request_assignees.user_id (id 17)":           "INSERT INTO merge_request_assignees (id, merge_request_id, user_id) VALUES (17, 12, 1)",
		"merge_request_reviewers.user_id (id 17)":           "INSERT INTO merge_request_reviewers (id, merge_request_id, user_id) VALUES (17, 12, 1)",
		"approvals.user_id (id 17)":                         "INSERT INTO approvals (id, merge_request_id, user_id) VALUES (17, 12, 1)",
		"award_emoji.user_id (id 17)":                       "INSERT INTO award_emoji (id, user_id, awardable_type, awardable_id, name) VALUES (17, 1, 'Issue', 11, 'x')",
		"snippets.author_id (id 17)":                        "INSERT INTO snippets (id, project_id, author_id, type, title) VALUES (17, 1, 1, 'ProjectSnippet', 's')",
		"releases.author_id (id 17)":                        "INSERT INTO releases (id, project_id, author_id, tag, released_at) VALUES (17, 1, 1, 'v1', now())",
		"resource_label_events.user_id (id 17)":             "INSERT INTO resource_label_events (id, issue_id, label_id, user_id, action) VALUES (17, 11, 14, 1, 1)",
		"resource_state_events.user_id (id 17)":             "INSERT INTO resource_state_events (id, issue_id, user_id, state) VALUES (17, 11, 1, 1)",
		"timelogs.user_id (id 17)":                          "INSERT INTO timelogs (id, project_id, issue_id, user_id, time_spent) VALUES (17, 1, 11, 1, 60)",
	}
}

func (b *bundle) ghostQueue() [][]string {
	return b.Rows("SELECT user_id, initiator_user_id, hard_delete FROM users_ghost_user_migrations ORDER BY user_id")
}

func (b *bundle) lastErrors() [][]string {
	return b.Rows("SELECT id, coalesce(last_error, '') FROM import_placeholder_user_details ORDER BY id")
}

// A row in each column of the default references blocks a placeholder, and the verdict
// names the column and the row.
func TestEachReferenceBlocks(t *testing.T) {
	t.Parallel()
	b := setupScene(t)
	r := b.remover(t)
	columns := map[string]bool{}
	for reference, write := range writes() {
		tx := pgtest.Must(b.Pool().Begin(t.Context()))(t)
		_, err := tx.Exec(t.Context(), write)
		require.NoError(t, err, write)
		one := *r
		one.DB = within{tx}
		verdict := pgtest.Must(one.Remove(t.Context(), 1))(t)
		require.Equal(t, placeholder.Blocked, verdict.Outcome, reference)
		require.Equal(t, "still referenced by "+reference, verdict.Reason)
		require.Len(t, verdict.Blockers, 1)
		columns[verdict.Blockers[0].Column] = true
		recorded := pgtest.Scalar[string](t, tx, "SELECT last_error FROM import_placeholder_user_details")
		require.Equal(t, verdict.Reason, recorded)
		require.NoError(t, tx.Rollback(t.Context()))
	}
	for _, label := range r.References.Labels() {
		require.True(t, columns[label], "no test writes into %s", label)
	}
	require.Empty(t, b.ghostQueue())
}

func TestAllBlockersAreReported(t *testing.T) {
	t.Parallel()
	b := setupScene(t)
	for _, write := range writes() {
		b.Exec(write)
	}
	verdict := b.remove(t, 1)
	require.Len(t, verdict.Blockers, len(writes()))
	for reference := range writes() {
		require.Contains(t, verdict.Reason, reference)
	}
	require.True(t,
		strings.HasPrefix(verdict.Reason, "still referenced by notes.author_id (id 17), issues.author_id (id 11), "),
		verdict.Reason)
	require.Equal(t, [][]string{{"1", verdict.Reason}}, b.lastErrors())
	require.Empty(t, b.ghostQueue())
	before := b.Rows("SELECT xmin, * FROM import_placeholder_user_details")
	require.Equal(t, verdict, b.remove(t, 1), "the second call")
	require.Equal(t, before, b.Rows("SELECT xmin, * FROM import_placeholder_user_details"), "the second call changes nothing")
}

func TestPlaceholderIsQueuedOnce(t *testing.T) {
	t.Parallel()
	b := setupScene(t)
	b.Exec("UPDATE import_placeholder_user_details SET last_error = 'old error'")
	verdict := b.remove(t, 1)
	require.Equal(t, placeholder.Verdict{UserID: 1, Outcome: placeholder.Queued, Blockers: []placeholder.Blocker{}},
		verdict)
	require.Equal(t, [][]string{{"1", "1", "f"}}, b.ghostQueue(), "the initiator is the user, and the kind is soft")
	require.Equal(t, [][]string{{"blocked"}}, b.Rows("SELECT state FROM users WHERE id = 1"))
	require.Equal(t, [][]string{{"1", ""}}, b.lastErrors(), "the error is removed")

	require.Equal(t, placeholder.QueuedBefore, b.remove(t, 1).Outcome, "the second call")
	require.Equal(t, [][]string{{"1", "1", "f"}}, b.ghostQueue())
	b.Exec(writes()["notes.author_id (id 17)"])
	require.Equal(t, placeholder.QueuedBefore, b.remove(t, 1).Outcome,
		"rows added to a queued user pass to the ghost user")
	require.Equal(t, [][]string{{"1", ""}}, b.lastErrors())
}

func TestOnlyPlaceholdersAreRemoved(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.placeholders(1)
	for userType, want := range map[int]placeholder.Outcome{
		0: placeholder.NoPlaceholder, 5: placeholder.NoPlaceholder, 6: placeholder.NoPlaceholder,
		11: placeholder.NoPlaceholder,
		13: placeholder.NoPlaceholder, 14: placeholder.NoPlaceholder, 16: placeholder.NoPlaceholder,
		17: placeholder.NoPlaceholder,
	} {
		b.Exec("UPDATE users SET user_type = $1", userType)
		require.Equal(t, want, b.remove(t, 1).Outcome, userType)
	}
	require.Empty(t, b.ghostQueue())
	require.Equal(t, [][]string{{"active"}}, b.Rows("SELECT state FROM users"))
	require.Equal(t, placeholder.Verdict{UserID: 99, Outcome: placeholder.Gone, Blockers: []placeholder.Blocker{}},
		b.remove(t, 99))
	b.Exec("UPDATE users SET user_type = 15")
	require.Equal(t, placeholder.Queued, b.remove(t, 1).Outcome)
}

// Remove waits for an uncommitted row that refers to the user, and finds the row. This is
// also true if the default isolation level is stricter. At such a level the query would
// use a snapshot from before the wait.
func TestUncommittedReference(t *testing.T) {
	t.Parallel()
	b := setupScene(t)
	b.Exec("DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_isolation = %L', current_database(), 'repeatable read'); END $$")
	b.Pool().Reset()
	writer := pgtest.Connect(t, b.URL)
	pgtest.Exec(t, writer, "BEGIN; UPDATE issues SET author_id = 1")
	r := b.remover(t)
	verdicts := make(chan placeholder.Verdict, 1)
	go func() {
		verdict, err := r.Remove(t.Context(), 1)
		if err != nil {
			t.Error(err)
		}
		verdicts <- verdict
	}()
	pgtest.Await(t, b.Pool(), "the remover to wait for the writer",
		"SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')")
	pgtest.Exec(t, writer, "COMMIT")
	require.Equal(t, "still referenced by issues.author_id (id 11)", (<-verdicts).Reason)

	pgtest.Exec(t, writer, "BEGIN; UPDATE issues SET author_id = 2; SELECT FROM users WHERE id = 1 FOR KEY SHARE")
	// The timeout leaves time for the search for the lock holder.
	r.Limits.LockTimeout = 3 * time.Second
	_, err := r.Remove(t.Context(), 1)
	require.ErrorContains(t, err, "lock timeout", "an error, so that the job is retried")
	refusal := fmt.Sprintf(`find rows that refer to the user: ERROR: canceling statement due to lock timeout \(SQLSTATE 55P03\) \(row locked by pid %d \(`, writer.PgConn().PID())
	require.Regexp(t, refusal, b.lastErrors()[0][1], "the error replaces the former reason")
	pgtest.Exec(t, writer, "COMMIT")
	require.Equal(t, placeholder.Queued, b.remove(t, 1).Outcome)
	require.Equal(t, [][]string{{"1", ""}}, b.lastErrors())
}

func TestCurrentIsCalledAfterAllWaits(t *testing.T) {
	t.Parallel()
	b := setupScene(t)
	writer := pgtest.Begin(t, b.Pool(), "SELECT FROM users WHERE id = 1 FOR UPDATE")
	outdated := errors.New("other references are installed")
	var called atomic.Bool
	r := b.remover(t)
	r.Current = func(context.Context, pgx.Tx) error { called.Store(true); return outdated }
	wait := dbtest.InBackground(func() (placeholder.Verdict, error) { return r.Remove(t.Context(), 1) })
	pgtest.Await(t, b.Pool(), "the remover to wait for the user",
		"SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')")
	require.False(t, called.Load(), "Current is not called before the lock is free")
	require.NoError(t, writer.Rollback(t.Context()))
	_, err := wait()
	require.ErrorIs(t, err, outdated)
	require.Empty(t, b.ghostQueue(), "nothing is committed")
}

func TestManyWorkersRemoveOnePlaceholder(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.placeholders(1, 2)
	b.Exec("INSERT INTO import_placeholder_user_details (id, placeholder_user_id, organization_id) VALUES (9, 1, 1)")
	r := b.remover(t)
	var workers sync.WaitGroup
	outcomes := make(chan placeholder.Outcome, 20)
	for worker := range 20 {
		workers.Go(func() {
			verdict, err := r.Remove(t.Context(), int64(1+worker%2))
			if err != nil {
				t.Error(err)
			}
			outcomes <- verdict.Outcome
		})
	}
	workers.Wait()
	close(outcomes)
	counts := map[placeholder.Outcome]int{}
	for outcome := range outcomes {
		counts[outcome]++
	}
	require.Equal(t, map[placeholder.Outcome]int{placeholder.Queued: 2, placeholder.QueuedBefore: 18}, counts)
	require.Equal(t, [][]string{{"1", "1", "f"}, {"2", "2", "f"}}, b.ghostQueue())
}

// A placeholder is either queued completely or not at all if Remove is killed before or
// after any statement. The next call queues it.
func TestRemoveKilledAnywhere(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r := b.remover(t)
	kills := b.KillAnywhere(t, 3, func(v *dbtest.Victim) {
		b.Exec("DELETE FROM users")
		b.placeholders(1)
		b.Exec("UPDATE import_placeholder_user_details SET last_error = 'old error'")
		r.DB = v.Connected(t).Pool
		_, err := r.Remove(t.Context(), 1)
		if !v.Killed() {
			require.NoError(t, err)
		}
		queued := len(b.ghostQueue())
		require.Len(t, b.Rows("SELECT FROM users WHERE state = 'active'"), 1-queued)
		require.Len(t, b.Rows("SELECT FROM import_placeholder_user_details WHERE last_error = 'old error'"), 1-queued)
		require.Contains(t, []placeholder.Outcome{placeholder.Queued, placeholder.QueuedBefore}, b.remove(t, 1).Outcome)
		require.Equal(t, [][]string{{"1", "1", "f"}}, b.ghostQueue())
	})
	require.Greater(t, kills, 5)
}

// Rows that row-level security hides are an error, because they must not count as
// deleted.
func TestHiddenRowsAreAnError(t *testing.T) {
	t.Parallel()
	b := setupScene(t)
	b.Exec(writes()["notes.author_id (id 17)"])
	b.Exec("ALTER TABLE notes ENABLE ROW LEVEL SECURITY; CREATE POLICY none ON notes USING (false)")
	role := b.CreateRole()
	b.Exec(fmt.Sprintf(`GRANT ALL ON ALL TABLES IN SCHEMA public, sexton TO %[1]s; GRANT USAGE ON SCHEMA sexton TO %[1]s;
		GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA sexton TO %[1]s`, role))
	conn := pgtest.Connect(t, b.AsRole(role))
	r := b.remover(t)
	r.DB = conn
	_, err := r.Remove(t.Context(), 1)
	require.ErrorContains(t, err, "row-level security")
	require.Empty(t, b.ghostQueue())
}

// Remove waits for a locked table no longer than its lock timeout, not even while it
// prepares statements.
func TestLockTimeoutOfATable(t *testing.T) {
	t.Parallel()
	b := setupScene(t)
	locker := pgtest.Connect(t, b.URL)
	r := b.remover(t)
	r.Limits.LockTimeout = 10 * time.Millisecond
	pgtest.Exec(t, locker, "BEGIN; LOCK TABLE timelogs")
	_, err := r.Remove(t.Context(), 1)
	require.ErrorContains(t, err, "lock timeout")
	pgtest.Exec(t, locker, "ROLLBACK")
	require.Equal(t, placeholder.Queued, b.remove(t, 1).Outcome)
}

func TestRemoveWithoutReferences(t *testing.T) {
	t.Parallel()
	b := setupScene(t)
	b.Exec(writes()["notes.author_id (id 17)"])
	bound, problems := pgtest.Must2(placeholder.Bind(t.Context(), b.Pool(), dbtest.Names(), nil))(t)
	require.Empty(t, problems)
	r := placeholder.Remover{
		DB: b.Pool(), Watched: b.Pool(), Names: dbtest.Names(), References: bound,
		Limits: batch.Limits{StatementTimeout: time.Minute, LockTimeout: time.Minute},
	}
	require.Equal(t, placeholder.Queued, pgtest.Must(r.Remove(t.Context(), 1))(t).Outcome)
}

func TestTriggersSeeNoPlannerSettings(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.placeholders(1)
	tables := []string{"import_placeholder_user_details", "users_ghost_user_migrations"}
	b.RecordPlannerSettings(tables...)
	require.EqualValues(t, 1, b.run(t).Scheduled)
	require.Equal(t, placeholder.Queued, b.remove(t, 1).Outcome)
	b.RequireDefaultPlannerSettings(t, tables...)
}
