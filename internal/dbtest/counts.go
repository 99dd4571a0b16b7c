package dbtest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/batch"
	"sexton/internal/lease"
	"sexton/internal/pgtest"
)

// Session returns a batch session with its own lease. The function end releases the
// session's connection and the lease. It is also called when the test ends.
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
		Conn: conn.Conn(), Names: d.Connected.Names, Fence: granted,
		Limits: batch.Limits{StatementTimeout: 20 * time.Second, LockTimeout: 20 * time.Second},
	}, end
}

// AwaitLock waits until a session of an engine waits for a lock of another session.
func (d *DB) AwaitLock(tb testing.TB) {
	pgtest.Await(tb, d.Pool(), "the engine to wait for a lock", `SELECT EXISTS (
		SELECT FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'sexton %' AND wait_event_type = 'Lock')`)
}

// InBackground calls do in a goroutine and returns a function that waits for its result.
func InBackground[T any](do func() (T, error)) (wait func() (T, error)) {
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
