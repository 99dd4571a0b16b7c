package riverjobs

import (
	"context"
	"encoding/json"
	"slices"
	"testing"

	"github.com/riverqueue/river"
	"github.com/stretchr/testify/require"

	"sexton/internal/groupdelete"
	"sexton/internal/jobrun"
	"sexton/internal/lease"
)

// destroyBundle is groupBundle with both groups due, and a project with an issue in group 10.
func destroyBundle(t *testing.T) bundle {
	t.Helper()
	b := groupBundle(t)
	b.db.Exec(markedLongAgo)
	b.db.Exec(`DELETE FROM sexton.river_queue;
		INSERT INTO projects (id, group_id, name, path) VALUES (100, 10, 'P', 'p');
		INSERT INTO issues (project_id, title) VALUES (100, 'first')`)
	return b
}

// workDestroy lets a real client work the job of a group and returns how it ended.
func (b bundle) workDestroy(t *testing.T, group int64) *river.Event {
	t.Helper()
	client, err := NewClient(b.deps, "test")
	require.NoError(t, err)
	events, cancel := client.Subscribe(river.EventKindJobCompleted, river.EventKindJobFailed, river.EventKindJobSnoozed)
	defer cancel()
	_, err = Enqueue(t.Context(), b.db.Pool(), b.db.Connected, GroupDestroy, GroupDestroyArgs{GroupID: group, UserID: 1}, nil)
	require.NoError(t, err)
	require.NoError(t, client.Start(t.Context()))
	defer func() { require.NoError(t, client.Stop(context.WithoutCancel(t.Context()))) }()
	return <-events
}

func TestGroupDestroyWorker(t *testing.T) {
	t.Parallel()
	b := destroyBundle(t)
	event := b.workDestroy(t, 10)
	require.Equal(t, river.EventKindJobCompleted, event.Kind)
	require.Equal(t, [][]string{{"11"}}, b.db.Rows("SELECT id FROM groups"))
	require.Empty(t, b.db.Rows("SELECT FROM issues"))
	require.Equal(t, [][]string{{"group_destroy", "done", "destroyed", "1"}}, b.db.Rows("SELECT kind, outcome, stats ->> 'outcome', stats ->> 'projects' FROM sexton.runs"))
	require.Contains(t, b.log.String(), "msg=group_processed kind=group_destroy database=main group_id=10 user_id=1 outcome=destroyed groups=1 projects=1")

	require.Equal(t, river.EventKindJobCompleted, b.workDestroy(t, 10).Kind, "a group that is gone is no error")
	require.Len(t, b.db.Rows("SELECT FROM sexton.events WHERE kind = 'group_destroyed'"), 1)
}

// Two users may each have asked for it. Whoever comes second finds the group in hand or gone, and all is told once.
func TestGroupDestroyOfTwoUsers(t *testing.T) {
	t.Parallel()
	b := destroyBundle(t)
	client, err := NewClient(b.deps, "test")
	require.NoError(t, err)
	events, cancel := client.Subscribe(river.EventKindJobCompleted, river.EventKindJobFailed)
	defer cancel()
	for user := range int64(2) {
		_, err = Enqueue(t.Context(), b.db.Pool(), b.db.Connected, GroupDestroy, GroupDestroyArgs{GroupID: 10, UserID: user + 1}, nil)
		require.NoError(t, err)
	}
	require.Len(t, b.db.Rows("SELECT FROM sexton.river_job WHERE kind = 'group_destroy'"), 2)
	require.NoError(t, client.Start(t.Context()))
	defer func() { require.NoError(t, client.Stop(context.WithoutCancel(t.Context()))) }()
	require.Equal(t, river.EventKindJobCompleted, (<-events).Kind)
	b.db.Exec("UPDATE sexton.river_job SET scheduled_at = now(), state = 'available' WHERE state IN ('scheduled', 'retryable')")
	require.Equal(t, river.EventKindJobCompleted, (<-events).Kind)
	require.Equal(t, [][]string{{"11"}}, b.db.Rows("SELECT id FROM groups"))
	require.Len(t, b.db.Rows("SELECT FROM sexton.events WHERE kind = 'group_destroyed'"), 1)
	require.Equal(t, [][]string{{"1"}}, b.db.Rows("SELECT count(*) FROM sexton.runs WHERE kind = 'group_destroy' AND stats ->> 'outcome' = 'destroyed'"))
}

// A group that something stands in the way of is tried again, with the reason recorded.
func TestGroupDestroyThatIsStuck(t *testing.T) {
	t.Parallel()
	b := destroyBundle(t)
	b.db.Exec(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'kept' USING ERRCODE = 'ZZ001'; END $$;
		CREATE TRIGGER refuse BEFORE DELETE ON projects FOR EACH ROW EXECUTE FUNCTION refuse()`)
	event := b.workDestroy(t, 10)
	require.Equal(t, river.EventKindJobFailed, event.Kind)
	require.Equal(t, 25, event.Job.MaxAttempts)
	require.Equal(t, "destroy group 10: projects: SQLSTATE ZZ001: kept", event.Job.Errors[0].Error)
	require.Equal(t, [][]string{{"1", "projects: SQLSTATE ZZ001: kept"}}, b.db.Rows("SELECT attempts, last_error FROM sexton.group_destructions"))
	require.Contains(t, b.log.String(), "msg=group_stuck")
}

// Whoever holds the lease is at it already; the job comes back without having lost an attempt.
func TestGroupDestroyUnderALeaseThatIsTaken(t *testing.T) {
	t.Parallel()
	b := destroyBundle(t)
	other := lease.Manager{Jobs: b.db.Connected, Holder: "other"}
	_, err := other.Acquire(t.Context(), groupdelete.LeaseKey(10), groupdelete.LeaseTTL, b.db.Connected)
	require.NoError(t, err)
	event := b.workDestroy(t, 10)
	require.Equal(t, river.EventKindJobSnoozed, event.Kind)
	require.Len(t, b.db.Rows("SELECT FROM issues"), 1)
}

// In the foreground the job runs under the same lease; what is not done goes on in a successor.
func TestGroupDestroyInTheForeground(t *testing.T) {
	t.Parallel()
	b := destroyBundle(t)
	at := slices.IndexFunc(Jobs(b.deps.Config), func(job Job) bool { return job.Kind == GroupDestroy })
	args, err := json.Marshal(GroupDestroyArgs{GroupID: 10, UserID: 1})
	require.NoError(t, err)
	report, err := Jobs(b.deps.Config)[at].Run(t.Context(), b.deps, Pass{Database: "main", Args: args})
	require.NoError(t, err)
	require.Equal(t, jobrun.Done, report.Outcome)
	require.Equal(t, jobrun.OverLimit, destroyResult(&groupdelete.Stats{Outcome: groupdelete.Unfinished}).Outcome)
}
