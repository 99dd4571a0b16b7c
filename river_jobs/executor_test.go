package riverjobs

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertest"
	"github.com/riverqueue/river/rivertype"
	"github.com/stretchr/testify/require"

	"sexton/internal/definitions"
	"sexton/internal/pgtest"
	"sexton/triggers"
)

// River computes the time of the next attempt of a failed or snoozed job from the
// worker's clock. The driver converts it to the server's clock.
func TestJobsHaveTheServersTimes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	on := &driver{Driver: riverpgxv5.New(b.db.Connected.Pool), jobs: b.db.Connected, client: "own", ticker: &ticker{}}
	minutes := func(sql string) int64 {
		return pgtest.Scalar[int64](t, b.db.Database, "SELECT round(extract(epoch FROM "+sql+
			" - now()) / 60)::bigint FROM sexton.river_job")
	}
	b.db.Exec("INSERT INTO sexton.river_job (kind, args, queue, max_attempts, state, attempted_at, attempted_by) VALUES ('x', '{}', 'x', 5, 'running', now(), '{own}')")
	id := pgtest.Scalar[int64](t, b.db.Database, "SELECT id FROM sexton.river_job")
	byWorker := time.Now().Add(5 * time.Minute)
	pgtest.Must(on.GetExecutor().JobSetStateIfRunningMany(t.Context(), &riverdriver.JobSetStateIfRunningManyParams{
		ID: []int64{id}, Attempt: []*int{nil}, ErrData: [][]byte{nil}, FinalizedAt: []*time.Time{nil},
		MetadataDoMerge: []bool{false},
		MetadataUpdates: [][]byte{nil}, ScheduledAt: []*time.Time{&byWorker}, Schema: "sexton",
		State: []rivertype.JobState{rivertype.JobStateScheduled},
	}))(t)
	require.EqualValues(t, 5, minutes("scheduled_at"))

	schedule := func() int {
		tx := pgtest.Must(on.GetExecutor().Begin(t.Context()))(t)
		defer func() { require.NoError(t, tx.Commit(t.Context())) }()
		later := time.Now().Add(time.Hour)
		moved := pgtest.Must(tx.JobSchedule(t.Context(),
			&riverdriver.JobScheduleParams{Max: 10, Now: &later, Schema: "sexton"}))(t)
		return len(moved)
	}
	require.Zero(t, schedule(), "the job is not due by the server's clock")
	b.db.Exec(`UPDATE sexton.river_job SET scheduled_at = now();
		INSERT INTO sexton.river_job (kind, args, queue, max_attempts, state, scheduled_at) VALUES ('x', '{}', 'y', 5, 'retryable', now())`)
	rescheduling := pgtest.Begin(t, b.db.Pool(), "SELECT FROM sexton.river_job WHERE queue = 'x' FOR UPDATE")
	require.Equal(t, 1, schedule(), "a job that is locked by another transaction does not block other jobs")
	require.NoError(t, rescheduling.Rollback(t.Context()))
	require.Equal(t, 1, schedule())
	require.Equal(t, [][]string{{"2"}}, b.db.Rows("SELECT count(*) FROM sexton.river_job WHERE state = 'available'"))

	ctx := t.Context()
	insert := func(tx riverdriver.ExecutorTx, at *time.Time) {
		b.db.Exec("DELETE FROM sexton.river_job")
		pgtest.Must(tx.JobInsertFastMany(ctx, &riverdriver.JobInsertFastManyParams{
			Schema: "sexton",
			Jobs: []*riverdriver.JobInsertFastParams{{
				EncodedArgs: []byte("{}"), Kind: "x", MaxAttempts: 1, Priority: 1, Queue: "x", ScheduledAt: at,
				State: rivertype.JobStateAvailable, Tags: []string{},
			}},
		}))(t)
		require.NoError(t, tx.Commit(ctx))
	}
	insert(pgtest.Must(on.GetExecutor().Begin(ctx))(t), &byWorker)
	require.Zero(t, minutes("scheduled_at"), "a tick is due")
	insert(on.UnwrapExecutor(pgtest.Must(b.db.Connected.Pool.Begin(ctx))(t)), &byWorker)
	require.Zero(t, minutes("scheduled_at"), "other inserted jobs are due, too")
}

// A job completes itself, and River then completes it again, even if the job was taken
// from this worker and another worker has it. River's completion changes no row.
func TestRiverDoesNotChangeCompletedJobs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	on := &driver{Driver: riverpgxv5.New(b.db.Connected.Pool), jobs: b.db.Connected, client: "own"}
	b.db.Exec(`INSERT INTO sexton.river_job (kind, args, queue, max_attempts, state, attempted_at, attempted_by)
		SELECT 'x', '{}', 'x', 5, 'running', now(), CASE id WHEN 4 THEN '{own,other}' ELSE '{own}' END::text[] FROM generate_series(1, 4) AS id`)
	ids := pgtest.Scalar[[]int64](t, b.db.Database, "SELECT array_agg(id ORDER BY id) FROM sexton.river_job")
	now := time.Now()
	end := func(on riverdriver.Executor, states map[int64]rivertype.JobState, want ...int64) {
		params := &riverdriver.JobSetStateIfRunningManyParams{Schema: "sexton"}
		for id, state := range states {
			params.ID, params.State, params.Attempt, params.ErrData = append(params.ID, id),
				append(params.State, state), append(params.Attempt, nil), append(params.ErrData, nil)
			params.FinalizedAt, params.ScheduledAt = append(params.FinalizedAt, &now), append(params.ScheduledAt, nil)
			params.MetadataDoMerge, params.MetadataUpdates = append(params.MetadataDoMerge, true),
				append(params.MetadataUpdates, []byte(`{"output": 1}`))
		}
		rows := pgtest.Must(on.JobSetStateIfRunningMany(ctx, params))(t)
		found := []int64{}
		for _, row := range rows {
			found = append(found, row.ID)
			require.JSONEq(t, `{"output": 1}`, string(row.Metadata))
		}
		require.ElementsMatch(t, want, found)
	}
	versions := func() string {
		return pgtest.Scalar[string](t, b.db.Database,
			"SELECT string_agg(xmin::text || ctid::text, ' ' ORDER BY id) FROM sexton.river_job WHERE id < $1", ids[2])
	}
	completed := func(ids ...int64) map[int64]rivertype.JobState {
		states := map[int64]rivertype.JobState{}
		for _, id := range ids {
			states[id] = rivertype.JobStateCompleted
		}
		return states
	}
	completeItself := func() {
		tx := pgtest.Must(b.db.Connected.Pool.Begin(ctx))(t)
		end(on.UnwrapExecutor(tx), completed(ids[0]), ids[0])
		require.NoError(t, tx.Commit(ctx))
	}
	completeItself()
	before, acquired := versions(), b.db.Connected.Pool.Stat().AcquireCount()
	end(on.GetExecutor(), completed(ids[0]), ids[0])
	end(on.GetExecutor(), completed(ids[1]))
	after := b.db.Connected.Pool.Stat().AcquireCount()
	require.Equal(t, acquired, after,
		"River acquires no connection, which a concurrent pass may need")
	require.Equal(t, before, versions())

	completeItself()
	before = versions()
	states := completed(ids[:2]...)
	states[ids[2]], states[ids[3]] = rivertype.JobStateDiscarded, rivertype.JobStateRetryable
	end(on.GetExecutor(), states, ids[0], ids[2])
	require.Equal(t, before, versions())
	require.Equal(t, [][]string{{"completed"}, {"running"}, {"discarded"}, {"running"}},
		b.db.Rows("SELECT state::text FROM sexton.river_job ORDER BY id"))
}

// Each successor of a job is announced by a notification, even if successors follow each
// other immediately. Without the notification, a successor would wait for River's next
// poll.
func TestEverySuccessorIsAnnounced(t *testing.T) {
	t.Parallel()
	b := setup(t)
	client, err := NewClient(b.deps, "this client")
	require.NoError(t, err)
	conn := pgtest.Connect(t, b.db.URL)
	pgtest.Exec(t, conn, `LISTEN "sexton.river_insert"`)
	pgtest.Must(client.Insert(t.Context(), LooseForeignKeysCleanupArgs{Database: "main"}, nil))(t)

	ctx, cancel := context.WithTimeout(rivertest.WorkContext(t.Context(), client), 20*time.Second)
	defer cancel()
	for i := range 4 {
		_, err = conn.WaitForNotification(ctx)
		require.NoError(t, err, "notification of job %d", i+1)
		// River sends at most one notification per millisecond. The wait includes a
		// margin.
		inserted := pgtest.Scalar[time.Time](t, b.db.Database, "SELECT clock_timestamp()")
		pgtest.Await(t, b.db.Database, "the next millisecond",
			"SELECT clock_timestamp() > $1::timestamptz + interval '3 ms'", inserted)
		id := pgtest.Scalar[int64](t, b.db.Database, `
			UPDATE sexton.river_job SET state = 'running', attempt = 1, attempted_at = now(), attempted_by = '{this client}'
			WHERE state = 'available' RETURNING id`)
		row := pgtest.Must(client.JobGet(ctx, id))(t)
		job := &river.Job[LooseForeignKeysCleanupArgs]{JobRow: row}
		require.NoError(t, json.Unmarshal(row.EncodedArgs, &job.Args))
		require.NoError(t, finish(ctx, b.deps, job, func(context.Context, pgx.Tx) (bool, error) { return true, nil }))
	}
}

func TestWorkingCoversTheJobUntilItsCompletion(t *testing.T) {
	t.Parallel()
	b := setup(t)
	began, ended := make(chan string, 1), make(chan string, 1)
	state := func(id int64) string {
		return pgtest.Scalar[string](t, b.db.Database, "SELECT state::text FROM sexton.river_job WHERE id = $1", id)
	}
	b.deps.Working = func(id int64) func() {
		began <- state(id)
		return func() { ended <- state(id) }
	}
	b.workDatabase(t, "main")
	require.Equal(t, "running", <-began)
	require.Equal(t, "completed", <-ended)
}

// If the definitions name another key column than the trigger records, the worker keeps
// the tombstones and deletes nothing.
func TestWorkerKeepsTombstonesOfAnotherKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.db.Exec("ALTER TABLE parents ADD number bigint UNIQUE; UPDATE parents SET number = 4 - id")
	before := b.state()
	earlier := b.deps.Definitions
	defs, err := definitions.Parse(definitions.File{Name: "definitions.yml", Data: []byte(
		"children: [{table: parents, column: parent_id, parent_column: number, on_delete: async_delete}]")})
	require.NoError(t, err)
	b.db.Exec("DELETE FROM parents WHERE id = 1")

	b.deps.Definitions = defs
	b.workDatabase(t, "main")
	require.Equal(t, before, b.state(), "1 is the number of an existing parent")
	require.Equal(t, [][]string{{"children: the trigger on public.parents records another key: " +
		"keep that key in the definitions (parent_column) until its tombstones have been processed, then run `sexton triggers install`. " +
		"If both keys have the same values, run `sexton triggers install --same-key` now"}},
		b.db.Rows("SELECT last_error FROM loose_foreign_keys_deleted_records"))

	b.deps.Definitions = earlier
	b.db.Exec("UPDATE loose_foreign_keys_deleted_records SET consume_after = now()")
	b.workDatabase(t, "main")
	require.Zero(t, b.db.Pending(t))
	require.Empty(t, b.db.Rows("SELECT FROM children WHERE parent_id = 1"))
}

// The worker uses a renamed key column without a restart, and the triggers can be
// installed again while tombstones are pending.
func TestWorkerUsesARenamedKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workDatabase(t, "main")
	b.db.Exec("DELETE FROM parents WHERE id = 1; ALTER TABLE parents RENAME id TO key; DELETE FROM parents WHERE key = 2")
	b.workDatabase(t, "main")
	require.Zero(t, b.db.Pending(t))
	require.Empty(t, b.db.Rows("SELECT FROM children WHERE parent_id IN (1, 2)"))

	b.db.Exec("DELETE FROM parents WHERE key = 3")
	b.db.TrackKeys(t, triggers.Parent{Schema: "public", Table: "parents", KeyColumns: []string{"key"}})
	b.workDatabase(t, "main")
	require.Empty(t, b.db.Rows("SELECT FROM children"))
}

// If triggers were installed for another key column while the worker runs, the worker
// detects that and deletes nothing.
func TestWorkerDetectsTriggersOfAnotherKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.db.Exec("ALTER TABLE parents ADD number bigint UNIQUE; UPDATE parents SET number = 4 - id")
	b.workDatabase(t, "main")
	before := b.state()

	b.db.TrackKeys(t, triggers.Parent{Schema: "public", Table: "parents", KeyColumns: []string{"number"}})
	b.db.Exec("DELETE FROM parents WHERE id = 3")
	b.workDatabase(t, "main")
	require.Equal(t, before, b.state(), "1 is the key of an existing parent")
	require.EqualValues(t, 1, b.db.Pending(t))
}
