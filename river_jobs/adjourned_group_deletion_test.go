package riverjobs

import (
	"testing"
	"time"

	"github.com/riverqueue/river"
	"github.com/stretchr/testify/require"

	"sexton/internal/listen"
	"sexton/internal/pgtest"
	"sexton/triggers"
)

// groupBundle is the reference application with an administrator (1), Ada (2), the groups 10 and 11, which the administrator
// and Ada have scheduled, and what jobs need to work on it. Nobody works on the destructions.
func groupBundle(t *testing.T) bundle {
	t.Helper()
	b := application(t, `
		INSERT INTO application_settings (deletion_adjourned_period) VALUES (30);
		INSERT INTO users (id, username, email, name, admin) VALUES (1, 'admin', 'admin@example.com', 'Admin', true), (2, 'ada', 'ada@example.com', 'Ada', false);
		INSERT INTO groups (id, name, path) VALUES (10, 'Ten', 'ten'), (11, 'Eleven', 'eleven');
		INSERT INTO members (user_id, source_type, source_id, access_level) VALUES (2, 'Namespace', 11, 50);`, "SEXTON_ADJOURNED_GROUPS__ENABLED=true")
	b.db.Exec("INSERT INTO sexton.river_queue (name, updated_at, paused_at) VALUES ('group_destroy', now(), now())")
	b.db.Exec("SELECT sexton.schedule_group_deletion(10, 1), sexton.schedule_group_deletion(11, 2)")
	return b
}

const markedLongAgo = `UPDATE groups SET marked_for_deletion_on = marked_for_deletion_on - 31;
	UPDATE group_deletion_schedules SET marked_for_deletion_on = marked_for_deletion_on - 31`

func TestAdjournedGroupsWorker(t *testing.T) {
	t.Parallel()
	b := groupBundle(t)
	require.False(t, b.due(t, AdjournedGroupDeletion).Now)
	require.Positive(t, b.due(t, AdjournedGroupDeletion).In)
	b.db.Exec(markedLongAgo + "; DELETE FROM members")
	require.True(t, b.due(t, AdjournedGroupDeletion).Now)
	require.Equal(t, river.EventKindJobCompleted, b.workOne(t, AdjournedGroupDeletionArgs{}).Kind)
	require.Equal(t, [][]string{{"10", "1"}}, b.db.Rows("SELECT args ->> 'group_id', args ->> 'user_id' FROM sexton.river_job WHERE kind = 'group_destroy'"))
	require.Equal(t, [][]string{{"eleven"}}, b.db.Rows("SELECT path FROM groups WHERE marked_for_deletion_on IS NULL"))
	require.Equal(t, [][]string{{"done", "1", "1"}}, b.db.Rows("SELECT outcome, stats ->> 'groups_enqueued', stats ->> 'groups_restored' FROM sexton.runs WHERE changed"))
	require.Regexp(t, `level=INFO msg=group_enqueued kind=adjourned_group_deletion database=main group_id=10 namespace=ten-deletion_scheduled-10 user_id=1 destroy_at=`, b.log.String())
	require.Contains(t, b.log.String(), "level=INFO msg=group_restored kind=adjourned_group_deletion database=main group_id=11 namespace=eleven-deletion_scheduled-11 user_id=2 reason=not_permitted")
	require.Equal(t, listen.Due{}, b.due(t, AdjournedGroupDeletion))
	b.workOne(t, AdjournedGroupDeletionArgs{})
	require.Len(t, b.db.Rows("SELECT FROM sexton.events WHERE kind = 'group_restored'"), 1, "the second run changes nothing")
	require.Len(t, b.db.Rows("SELECT FROM sexton.river_job WHERE kind = 'group_destroy'"), 1)
}

func TestAdjournedGroupsAreNotDueWhilePausedOrPutOff(t *testing.T) {
	t.Parallel()
	b := groupBundle(t)
	b.db.Exec(markedLongAgo)
	require.True(t, b.due(t, AdjournedGroupDeletion).Now)
	b.db.Exec("INSERT INTO sexton.river_queue (name, updated_at, paused_at) VALUES ($1, now(), now())", AdjournedGroupDeletion)
	require.False(t, b.due(t, AdjournedGroupDeletion).Now, "paused")
	b.db.Exec("DELETE FROM sexton.river_queue")
	b.db.Exec(`INSERT INTO sexton.river_job (args, kind, max_attempts, queue, scheduled_at, state)
		VALUES ('{}', $1, 25, $1, now() + interval '1 hour', 'retryable')`, AdjournedGroupDeletion)
	require.False(t, b.due(t, AdjournedGroupDeletion).Now, "the next attempt has its time")
	b.db.Exec("UPDATE sexton.river_job SET scheduled_at = now()")
	require.True(t, b.due(t, AdjournedGroupDeletion).Now)
}

func TestFailedPassIsTriedAgain(t *testing.T) {
	t.Parallel()
	b := groupBundle(t)
	b.db.Exec(markedLongAgo + "; DROP FUNCTION sexton.decide_group_deletion")
	require.Equal(t, river.EventKindJobFailed, b.workOne(t, AdjournedGroupDeletionArgs{}).Kind)
	require.Equal(t, [][]string{{"f", "1", "25"}}, b.db.Rows(
		"SELECT finalized_at IS NOT NULL, attempt, max_attempts FROM sexton.river_job WHERE kind = $1", AdjournedGroupDeletion))
	require.Contains(t, b.log.String(), "msg=run_failed")
	require.Empty(t, b.db.Rows("SELECT FROM sexton.group_deletion_failures"), "no group is to blame")
}

func TestFailedGroupIsLogged(t *testing.T) {
	t.Parallel()
	b := groupBundle(t)
	b.db.Exec(markedLongAgo + "; DELETE FROM sexton.job_kinds WHERE kind = 'group_destroy'")
	require.Equal(t, river.EventKindJobCompleted, b.workOne(t, AdjournedGroupDeletionArgs{}).Kind)
	require.Contains(t, b.log.String(), "level=ERROR msg=group_failed kind=adjourned_group_deletion database=main group_id=10 namespace=\"\" user_id=0 "+
		"sqlstate=22023 error=\"enqueue: there is no kind 'group_destroy'\" stack=\"PL/pgSQL function")
	require.Len(t, b.db.Rows("SELECT FROM sexton.group_deletion_failures"), 2)
	require.InDelta(t, time.Minute, b.due(t, AdjournedGroupDeletion).In, float64(10*time.Second))
}

func TestWithoutAPeriodTheJobIsSkipped(t *testing.T) {
	t.Parallel()
	b := groupBundle(t)
	b.db.Exec(markedLongAgo + "; DELETE FROM application_settings")
	require.Equal(t, river.EventKindJobCompleted, b.workOne(t, AdjournedGroupDeletionArgs{}).Kind)
	require.Equal(t, [][]string{{"skipped"}}, b.db.Rows("SELECT outcome FROM sexton.runs"))
	require.Contains(t, b.log.String(), "level=WARN msg=\"no group is due, as application_settings.deletion_adjourned_period is not set to 1 to 90 days\"")
	require.Empty(t, b.db.Rows("SELECT FROM sexton.river_job WHERE state <> 'completed'"), "no successor")
}

// Marks that make something due wake a sleeping worker, wherever they are set; all others wake nobody.
func TestMarksWakeTheJob(t *testing.T) {
	t.Parallel()
	b := groupBundle(t)
	conn := pgtest.Connect(t, b.db.URL)
	cfg, parents := Tracking(b.deps.Config, b.db.Connected, nil)
	pgtest.Must(triggers.Install(t.Context(), conn, cfg, parents))(t)
	require.Empty(t, pgtest.Must(triggers.Status(t.Context(), conn, cfg, parents))(t))
	pgtest.Exec(t, conn, "LISTEN "+triggers.WakeChannel)
	for _, step := range []struct {
		statement string
		wakes     bool
	}{
		{"INSERT INTO groups (id, name, path) VALUES (12, 'Twelve', 'twelve')", false},
		{"SELECT sexton.schedule_group_deletion(12, 1)", false},
		{"UPDATE groups SET marked_for_deletion_on = marked_for_deletion_on - 31 WHERE id = 12", true},
		{"UPDATE groups SET name = 'x' WHERE id = 12", false},
		{"UPDATE group_deletion_schedules SET marked_for_deletion_on = marked_for_deletion_on - 31 WHERE group_id = 12", true},
		{"SELECT sexton.cancel_group_deletion(12, 1)", false},
		{"SELECT sexton.delete_group_now(12, 1)", true},
		{"INSERT INTO groups (id, name, path, marked_for_deletion_on) VALUES (13, 'Thirteen', 'thirteen', current_date - 99)", true},
	} {
		b.db.Exec(step.statement)
		pgtest.Exec(t, conn, "SELECT pg_notify($1, 'that is all')", triggers.WakeChannel)
		woken := false
		for payload := ""; payload != "that is all"; {
			payload = pgtest.Must(conn.WaitForNotification(t.Context()))(t).Payload
			woken = woken || payload == AdjournedGroupDeletion
		}
		require.Equal(t, step.wakes, woken, step.statement)
	}
	require.EqualValues(t, 3, pgtest.Scalar[int64](t, b.db.Database, "SELECT count(*) FROM group_deletion_schedules"))
}
