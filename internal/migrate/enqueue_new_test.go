package migrate_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/migrate"
	"sexton/internal/pgtest"
)

// children has one kind whose jobs another kind inserts.
func children(t *testing.T) *pgtest.Database {
	t.Helper()
	d := pgtest.New(t)
	db := everything(t, d)
	db.Kinds = []migrate.Kind{{Kind: "child", Queue: "child", Args: map[string]string{"user_id": migrate.Bigint}, MaxAttempts: 25}}
	up(t, db)
	return d
}

const (
	newJob   = `SELECT sexton.enqueue_new('child', '{"user_id": 7}')`
	jobWaits = `SELECT sexton.job_waits('child', '{"user_id":7}')`
)

func TestEnqueueNewSaysWhetherTheJobIsNew(t *testing.T) {
	t.Parallel()
	d := children(t)
	require.False(t, pgtest.Scalar[bool](t, d, jobWaits))
	first := pgtest.Scalar[*int64](t, d, newJob)
	require.NotNil(t, first)
	require.True(t, pgtest.Scalar[bool](t, d, jobWaits))
	require.Nil(t, pgtest.Scalar[*int64](t, d, newJob), "an equal job waits")
	require.Equal(t, *first, pgtest.Scalar[int64](t, d, `SELECT sexton.enqueue('child', '{"user_id": 7}')`), "the two know each other's jobs")
	require.NotNil(t, pgtest.Scalar[*int64](t, d, `SELECT sexton.enqueue_new('child', '{"user_id": 8}')`))

	for _, state := range []string{"running", "retryable", "scheduled", "pending"} {
		d.Exec("UPDATE sexton.river_job SET state = $1::text::sexton.river_job_state, scheduled_at = now() WHERE id = $2", state, *first)
		require.Nil(t, pgtest.Scalar[*int64](t, d, newJob), state)
		require.True(t, pgtest.Scalar[bool](t, d, jobWaits), state)
	}
	for _, state := range []string{"completed", "cancelled", "discarded"} {
		d.Exec("UPDATE sexton.river_job SET state = $1::text::sexton.river_job_state, finalized_at = now() WHERE args @> '{\"user_id\": 7}'", state)
		require.False(t, pgtest.Scalar[bool](t, d, jobWaits), state)
		require.NotNil(t, pgtest.Scalar[*int64](t, d, newJob), state)
	}
}

func TestEnqueueNewLeavesTheTimeOfTheJobThatIsThere(t *testing.T) {
	t.Parallel()
	d := children(t)
	require.NotNil(t, pgtest.Scalar[*int64](t, d, `SELECT sexton.enqueue_new('child', '{"user_id": 7}', '2099-01-01Z')`))
	require.Nil(t, pgtest.Scalar[*int64](t, d, newJob))
	require.Equal(t, [][]string{{"scheduled", "t", "25", "child"}},
		d.Rows("SELECT state, scheduled_at = '2099-01-01Z', max_attempts, queue FROM sexton.river_job"), "enqueue would pull it forward")
	d.Exec(`SELECT sexton.enqueue_new('child', '{"user_id": 9}', now() - interval '1 hour')`)
	require.Equal(t, [][]string{{"available"}}, d.Rows(`SELECT state FROM sexton.river_job WHERE args @> '{"user_id": 9}'`))
}

func TestEnqueueNewRefusesWhatDoesNotFit(t *testing.T) {
	t.Parallel()
	d := children(t)
	for call, message := range map[string]string{
		`sexton.enqueue_new('stranger')`:                 `there is no kind 'stranger'`,
		`sexton.enqueue_new('child')`:                    `argument "user_id" is missing`,
		`sexton.enqueue_new('child', '{"user_id": ""}')`: `argument "user_id" must be bigint, not string`,
	} {
		_, err := d.Pool().Exec(t.Context(), "SELECT "+call)
		require.ErrorContains(t, err, message)
	}
}

// An equal job that is not committed yet is waited for: whether it comes to be decides who has the new one.
func TestEnqueueNewWaitsForAnEqualJob(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"COMMIT", "ROLLBACK"} {
		d := children(t)
		other := pgtest.Connect(t, d.URL)
		pgtest.Exec(t, other, "BEGIN; "+newJob)
		got := make(chan *int64)
		go func() {
			var id *int64
			if err := d.Pool().QueryRow(t.Context(), newJob).Scan(&id); err != nil {
				t.Error(err)
			}
			got <- id
		}()
		pgtest.Await(t, d.Pool(), "the call to wait for the other transaction", "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')")
		pgtest.Exec(t, other, end)
		require.Equal(t, end == "ROLLBACK", <-got != nil, end)
		require.EqualValues(t, 1, pgtest.Scalar[int64](t, d, "SELECT count(*) FROM sexton.river_job"))
	}
}
