package riverjobs

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertest"
	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
)

// TestEverySuccessorIsAnnounced has a job followed by successors at once. Where River leaves out one
// notification, that successor waits for the next poll, a second later.
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
		// River's shortest interval between notifications, with a margin.
		inserted := pgtest.Scalar[time.Time](t, b.db.Database, "SELECT clock_timestamp()")
		pgtest.Await(t, b.db.Database, "the next millisecond", "SELECT clock_timestamp() > $1::timestamptz + interval '3 ms'", inserted)
		id := pgtest.Scalar[int64](t, b.db.Database, `
			UPDATE sexton.river_job SET state = 'running', attempt = 1, attempted_at = now(), attempted_by = '{this client}'
			WHERE state = 'available' RETURNING id`)
		row := pgtest.Must(client.JobGet(ctx, id))(t)
		job := &river.Job[LooseForeignKeysCleanupArgs]{JobRow: row}
		require.NoError(t, json.Unmarshal(row.EncodedArgs, &job.Args))
		require.NoError(t, finish(ctx, b.deps, job, func(context.Context, pgx.Tx) (bool, error) { return true, nil }))
	}
}

func TestAJobCountsAsWorkedOnUntilItsRowHasEnded(t *testing.T) {
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
	b.worked(t, "main")
	require.Equal(t, "running", <-began)
	require.Equal(t, "completed", <-ended)
}
