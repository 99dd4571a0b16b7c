package ghostuser_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/ghostuser"
)

// Whoever looks at a run that could not go on because of a lock wants to know whose it was. The user has not failed.
func TestTheReasonNamesWhoHeldTheLock(t *testing.T) {
	t.Parallel()
	for name, lock := range map[string]struct{ statement, table string }{
		"a row of a column's": {"SELECT FROM posts WHERE id = 2 FOR UPDATE", "posts: "},
		"a whole table":       {"LOCK TABLE likes", "users: "},
		"the user":            {"SELECT FROM users WHERE id = 1 FOR KEY SHARE", "users: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, contributions, lists())
			// Half a second more than it takes until somebody asks.
			b.engine.Session.Limits.LockTimeout = 700 * time.Millisecond
			b.engine.Blocker = func(ctx context.Context) string {
				reason, err := b.engine.Session.Blocker(ctx, b.Pool())
				if err != nil {
					return ""
				}
				return reason
			}
			b.queue(false, 1)
			tx := b.Begin(t, lock.statement)
			pid := tx.Conn().PgConn().PID()
			b.engine.Limits.Runtime = 2 * time.Second
			stats := b.run(t)
			require.NoError(t, tx.Commit(t.Context()))
			require.Equal(t, [][]string{{"1", "0", "f", ""}}, b.queued())
			require.Empty(t, stats.Errors)
			require.Regexp(t, fmt.Sprintf(`^%scanceling statement due to lock timeout \(.+ by pid %d\b.*\)$`, lock.table, pid), stats.Held)
			b.engine.Limits.Runtime = time.Minute
			b.requireDone(t, b.run(t), 1)
		})
	}
}

// A user whose very row in the queue is locked stops nobody else.
func TestALockInTheQueueStopsNobodyElse(t *testing.T) {
	t.Parallel()
	b := setup(t, contributions, lists())
	b.engine.Session.Limits.LockTimeout = 300 * time.Millisecond
	b.engine.Limits.Runtime = 6 * time.Second
	b.queue(false, 1, 2)
	queued := b.Begin(t, "SELECT FROM users_ghost_user_migrations WHERE user_id = 1 FOR UPDATE")
	stats := b.run(t)
	require.EqualValues(t, 1, stats.UsersProcessed)
	require.Zero(t, stats.UsersFailed)
	require.NoError(t, queued.Commit(t.Context()))
	require.Equal(t, [][]string{{"1", "0", "f", ""}}, b.queued(), "due still")
	b.requireDone(t, b.run(t), 1)
}

// Neither is one who is gone and whose row in the queue is locked, nor one who is locked when the run ends.
func TestALockInTheQueueEndsNoRun(t *testing.T) {
	t.Parallel()
	b := setup(t, contributions, lists())
	b.engine.Session.Limits.LockTimeout = 300 * time.Millisecond
	b.Exec("ALTER TABLE users_ghost_user_migrations DROP CONSTRAINT users_ghost_user_migrations_user_id_fkey; INSERT INTO users_ghost_user_migrations (user_id) VALUES (404)")
	b.queue(false, 1, 2)
	queued := b.Begin(t, "SELECT FROM users_ghost_user_migrations WHERE user_id = 404 FOR UPDATE")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var last pgx.Tx
	b.engine.Progress = func(_ context.Context, stats *ghostuser.Stats) {
		if stats.UsersProcessed == 1 && last == nil {
			last = b.Begin(t, "SELECT FROM users_ghost_user_migrations FOR UPDATE SKIP LOCKED")
			cancel()
		}
	}
	stats, err := b.engine.Run(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 1, stats.UsersProcessed)
	require.True(t, stats.Interrupted)
	require.NoError(t, last.Commit(t.Context()))

	b.engine.Progress = nil
	b.engine.Limits.Runtime = 2 * time.Second
	stats = b.run(t)
	require.EqualValues(t, 1, stats.UsersProcessed)
	require.Zero(t, stats.UsersFailed)
	require.NoError(t, queued.Commit(t.Context()))
	require.EqualValues(t, 1, b.run(t).UsersDropped)
	require.Empty(t, b.queued())
}
