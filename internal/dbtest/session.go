package dbtest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/batch"
	"sexton/internal/lease"
)

// Session returns one under a lease of its own. It ends with the test, or with end.
func (d *DB) Session(tb testing.TB, key string) (session *batch.Session, end func()) {
	tb.Helper()
	manager := lease.Manager{Jobs: d.Connected, Holder: tb.Name()}
	granted, err := manager.Acquire(tb.Context(), key, 5*time.Minute, d.Connected)
	require.NoError(tb, err)
	conn, err := d.Pool().Acquire(tb.Context())
	require.NoError(tb, err)
	end = sync.OnceFunc(func() {
		conn.Release()
		require.NoError(tb, granted.Release(context.WithoutCancel(tb.Context())))
	})
	tb.Cleanup(end)
	return &batch.Session{
		Conn: conn.Conn(), Names: Names(), Fence: granted, Limits: batch.Limits{StatementTimeout: 20 * time.Second, LockTimeout: 20 * time.Second},
	}, end
}
