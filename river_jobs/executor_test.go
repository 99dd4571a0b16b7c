package riverjobs

import (
	"testing"
	"time"

	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"
	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
)

// River reckons with the worker's clock when a failed or snoozed job goes on.
func TestJobsHaveTheServersTimes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	on := &driver{Driver: riverpgxv5.New(b.db.Connected.Pool), jobs: b.db.Connected, client: "own", ticker: &ticker{}}
	minutes := func(sql string) int64 {
		return pgtest.Scalar[int64](t, b.db.Database, "SELECT round(extract(epoch FROM "+sql+" - now()) / 60)::bigint FROM sexton.river_job")
	}
	b.db.Exec("INSERT INTO sexton.river_job (kind, args, queue, max_attempts, state, attempted_at, attempted_by) VALUES ('x', '{}', 'x', 5, 'running', now(), '{own}')")
	id := pgtest.Scalar[int64](t, b.db.Database, "SELECT id FROM sexton.river_job")
	byWorker := time.Now().Add(5 * time.Minute)
	pgtest.Must(on.GetExecutor().JobSetStateIfRunningMany(t.Context(), &riverdriver.JobSetStateIfRunningManyParams{
		ID: []int64{id}, Attempt: []*int{nil}, ErrData: [][]byte{nil}, FinalizedAt: []*time.Time{nil}, MetadataDoMerge: []bool{false},
		MetadataUpdates: [][]byte{nil}, ScheduledAt: []*time.Time{&byWorker}, Schema: "sexton", State: []rivertype.JobState{rivertype.JobStateScheduled},
	}))(t)
	require.EqualValues(t, 5, minutes("scheduled_at"))

	schedule := func() int {
		tx := pgtest.Must(on.GetExecutor().Begin(t.Context()))(t)
		defer func() { require.NoError(t, tx.Commit(t.Context())) }()
		ahead := time.Now().Add(time.Hour)
		moved := pgtest.Must(tx.JobSchedule(t.Context(), &riverdriver.JobScheduleParams{Max: 10, Now: &ahead, Schema: "sexton"}))(t)
		return len(moved)
	}
	require.Zero(t, schedule(), "it is not due by the server's clock")
	b.db.Exec("UPDATE sexton.river_job SET scheduled_at = now()")
	require.Equal(t, 1, schedule())

	ctx := t.Context()
	insert := func(tx riverdriver.ExecutorTx, at *time.Time) {
		b.db.Exec("DELETE FROM sexton.river_job")
		pgtest.Must(tx.JobInsertFastMany(ctx, &riverdriver.JobInsertFastManyParams{Schema: "sexton", Jobs: []*riverdriver.JobInsertFastParams{{
			EncodedArgs: []byte("{}"), Kind: "x", MaxAttempts: 1, Priority: 1, Queue: "x", ScheduledAt: at, State: rivertype.JobStateAvailable, Tags: []string{},
		}}}))(t)
		require.NoError(t, tx.Commit(ctx))
	}
	insert(pgtest.Must(on.GetExecutor().Begin(ctx))(t), &byWorker)
	require.Zero(t, minutes("scheduled_at"), "a tick is due")
	insert(on.UnwrapExecutor(pgtest.Must(b.db.Connected.Pool.Begin(ctx))(t)), &byWorker)
	require.Zero(t, minutes("scheduled_at"), "as all else that is inserted")
}

// A job ends itself, and River ends it once more: also one that was taken from its worker meanwhile, which another one works on.
func TestRiverEndsNoJobThatEndsItself(t *testing.T) {
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
			params.ID, params.State, params.Attempt, params.ErrData = append(params.ID, id), append(params.State, state), append(params.Attempt, nil), append(params.ErrData, nil)
			params.FinalizedAt, params.ScheduledAt = append(params.FinalizedAt, &now), append(params.ScheduledAt, nil)
			params.MetadataDoMerge, params.MetadataUpdates = append(params.MetadataDoMerge, true), append(params.MetadataUpdates, []byte(`{"output": 1}`))
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
		return pgtest.Scalar[string](t, b.db.Database, "SELECT string_agg(xmin::text || ctid::text, ' ' ORDER BY id) FROM sexton.river_job WHERE id < $1", ids[2])
	}
	completed := func(ids ...int64) map[int64]rivertype.JobState {
		states := map[int64]rivertype.JobState{}
		for _, id := range ids {
			states[id] = rivertype.JobStateCompleted
		}
		return states
	}
	itself := func() {
		tx := pgtest.Must(b.db.Connected.Pool.Begin(ctx))(t)
		end(on.UnwrapExecutor(tx), completed(ids[0]), ids[0])
		require.NoError(t, tx.Commit(ctx))
	}
	itself()
	before, acquired := versions(), b.db.Connected.Pool.Stat().AcquireCount()
	end(on.GetExecutor(), completed(ids[0]), ids[0])
	end(on.GetExecutor(), completed(ids[1]))
	after := b.db.Connected.Pool.Stat().AcquireCount()
	require.Equal(t, acquired, after, "River needs no connection: its own would keep one from a pass that comes meanwhile")
	require.Equal(t, before, versions())

	itself()
	before = versions()
	beside := completed(ids[:2]...)
	beside[ids[2]], beside[ids[3]] = rivertype.JobStateDiscarded, rivertype.JobStateRetryable
	end(on.GetExecutor(), beside, ids[0], ids[2])
	require.Equal(t, before, versions())
	require.Equal(t, [][]string{{"completed"}, {"running"}, {"discarded"}, {"running"}}, b.db.Rows("SELECT state::text FROM sexton.river_job ORDER BY id"))
}
