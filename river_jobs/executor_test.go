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
	on := &driver{Driver: riverpgxv5.New(b.db.Connected.Pool), jobs: b.db.Connected}
	const ahead = time.Hour
	on.ahead.Store(int64(ahead))
	minutes := func(sql string) int64 {
		return pgtest.Scalar[int64](t, b.db.Database, "SELECT round(extract(epoch FROM "+sql+" - now()) / 60)::bigint FROM sexton.river_job")
	}
	b.db.Exec("INSERT INTO sexton.river_job (kind, args, queue, max_attempts, state, attempted_at) VALUES ('x', '{}', 'x', 5, 'running', now())")
	id := pgtest.Scalar[int64](t, b.db.Database, "SELECT id FROM sexton.river_job")
	byWorker := time.Now().Add(ahead + 5*time.Minute)
	_, err := on.GetExecutor().JobSetStateIfRunningMany(t.Context(), &riverdriver.JobSetStateIfRunningManyParams{
		ID: []int64{id}, Attempt: []*int{nil}, ErrData: [][]byte{nil}, FinalizedAt: []*time.Time{nil}, MetadataDoMerge: []bool{false},
		MetadataUpdates: [][]byte{nil}, ScheduledAt: []*time.Time{&byWorker}, Schema: "sexton", State: []rivertype.JobState{rivertype.JobStateScheduled},
	})
	require.NoError(t, err)
	require.EqualValues(t, 5, minutes("scheduled_at"))

	schedule := func(byWorker time.Time) int {
		tx, err := on.GetExecutor().Begin(t.Context())
		require.NoError(t, err)
		defer func() { require.NoError(t, tx.Commit(t.Context())) }()
		moved, err := tx.JobSchedule(t.Context(), &riverdriver.JobScheduleParams{Max: 10, Now: &byWorker, Schema: "sexton"})
		require.NoError(t, err)
		return len(moved)
	}
	require.Zero(t, schedule(time.Now().Add(ahead)), "it is not due by the server's clock")
	require.Equal(t, 1, schedule(time.Now().Add(ahead+6*time.Minute)))

	ctx := t.Context()
	insert := func(tx riverdriver.ExecutorTx, at *time.Time) {
		b.db.Exec("DELETE FROM sexton.river_job")
		_, err := tx.JobInsertFastMany(ctx, &riverdriver.JobInsertFastManyParams{Schema: "sexton", Jobs: []*riverdriver.JobInsertFastParams{{
			EncodedArgs: []byte("{}"), Kind: "x", MaxAttempts: 1, Priority: 1, Queue: "x", ScheduledAt: at, State: rivertype.JobStateAvailable, Tags: []string{},
		}}})
		require.NoError(t, err)
		require.NoError(t, tx.Commit(ctx))
	}
	tick, err := on.GetExecutor().Begin(ctx)
	require.NoError(t, err)
	insert(tick, &byWorker)
	require.Zero(t, minutes("scheduled_at"), "a tick is due")
	for at, want := range map[*time.Time]int64{nil: 0, &byWorker: 5} {
		tx, err := b.db.Connected.Pool.Begin(ctx)
		require.NoError(t, err)
		insert(on.UnwrapExecutor(tx), at)
		require.Equal(t, want, minutes("scheduled_at"))
	}
}
