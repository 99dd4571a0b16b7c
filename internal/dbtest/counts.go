package dbtest

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/batch"
	"sexton/internal/lease"
	"sexton/internal/pgtest"
)

// Counting makes batches under the lease count for a run of their own, until the function that it returns expects that they have
// counted, by session, what the statistics say: rows by field and label.
func Counting(tb testing.TB, granted *lease.Lease, sessions ...*pgx.Conn) func(want map[[2]string]int64) {
	run := rand.Int64()
	granted.For(run)
	return func(want map[[2]string]int64) {
		granted.For(0)
		found := map[[2]string]int64{}
		if slices.ContainsFunc(sessions, (*pgx.Conn).IsClosed) {
			return // A test of just that.
		}
		for _, session := range sessions {
			rows := pgtest.Must(session.Query(tb.Context(), `SELECT field, label, rows FROM sexton.run_counts WHERE run_id = $1 UNION ALL
				SELECT other.field, other.label, other.rows FROM sexton.run_counts, jsonb_to_recordset(others) AS other (field text, label text, rows bigint)
				WHERE run_id = $1`, run))(tb)
			var field, label string
			var n int64
			_, err := pgx.ForEachRow(rows, []any{&field, &label, &n}, func() error { found[[2]string{field, label}] += n; return nil })
			require.NoError(tb, err)
		}
		for of, n := range want {
			if n == 0 {
				delete(want, of)
			}
		}
		require.Equal(tb, want, found, "what batches have counted must equal the statistics")
	}
}

// Session returns one under a lease of its own. It ends with the test, or with end.
func (d *DB) Session(tb testing.TB, key string) (session *batch.Session, end func()) {
	manager := lease.Manager{Jobs: d.Connected, Holder: tb.Name()}
	granted := pgtest.Must(manager.Acquire(tb.Context(), key, 5*time.Minute, d.Connected))(tb)
	conn := pgtest.Must(d.Pool().Acquire(tb.Context()))(tb)
	end = sync.OnceFunc(func() {
		conn.Release()
		require.NoError(tb, granted.Release(context.WithoutCancel(tb.Context())))
	})
	tb.Cleanup(end)
	return &batch.Session{
		Conn: conn.Conn(), Names: Names(), Fence: granted, Limits: batch.Limits{StatementTimeout: 20 * time.Second, LockTimeout: 20 * time.Second},
	}, end
}

// AwaitLock returns once a session of an engine waits for a lock that another session has.
func (d *DB) AwaitLock(tb testing.TB) {
	pgtest.Await(tb, d.Pool(), "the engine to wait for a lock", `SELECT EXISTS (
		SELECT FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'sexton %' AND wait_event_type = 'Lock')`)
}

// Meanwhile calls do in the background, and returns a function that waits for the result.
func Meanwhile[T any](do func() (T, error)) (wait func() (T, error)) {
	var result T
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		result, err = do()
	}()
	return func() (T, error) {
		<-done
		return result, err
	}
}
