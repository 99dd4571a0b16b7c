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

// Whoever looks at a user that was put off because of a lock wants to know whose it was.
func TestTheReasonNamesWhoHeldTheLock(t *testing.T) {
	t.Parallel()
	for name, lock := range map[string]struct{ statement, table string }{
		"a row of a column's": {"SELECT FROM posts WHERE id = 2 FOR UPDATE", "posts: "},
		"a whole table":       {"LOCK TABLE likes", ""},
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
			tx := b.begin(t, lock.statement)
			pid := tx.Conn().PgConn().PID()
			stats := b.run(t)
			require.EqualValues(t, 1, stats.UsersFailed)
			require.NoError(t, tx.Commit(t.Context()))
			queued := b.queued()
			require.Len(t, queued, 1)
			require.Regexp(t, fmt.Sprintf(`^%sSQLSTATE 55P03: canceling statement due to lock timeout \(.+ by pid %d\b.*\)$`, lock.table, pid), queued[0][3])
		})
	}
}

// A user whose very row in the queue is locked cannot even be put off. That is no reason to leave the others.
func TestALockInTheQueueStopsNobodyElse(t *testing.T) {
	t.Parallel()
	b := setup(t, contributions, lists())
	b.engine.Session.Limits.LockTimeout = 300 * time.Millisecond
	b.queue(false, 1)
	b.queue(false, 2)
	queued := b.begin(t, "SELECT FROM users_ghost_user_migrations WHERE user_id = 1 FOR UPDATE")
	written := b.begin(t, "SELECT FROM posts WHERE author_id = 2 AND id < 10 FOR UPDATE")
	committed := make(chan error, 1)
	b.engine.Ended = func(ctx context.Context, item ghostuser.Item) {
		b.items = append(b.items, item)
		if item.Outcome == ghostuser.Failed {
			committed <- written.Commit(ctx)
		}
	}
	stats := b.run(t)
	require.EqualValues(t, 1, stats.UsersFailed)
	require.EqualValues(t, 1, stats.UsersProcessed)
	require.NoError(t, <-committed)
	require.Equal(t, []int64{1, 2}, []int64{b.items[0].UserID, b.items[1].UserID})
	require.Contains(t, b.items[0].Message, "; put off user 1: ")
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
	queued := b.begin(t, "SELECT FROM users_ghost_user_migrations WHERE user_id = 404 FOR UPDATE")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var last pgx.Tx
	b.engine.Progress = func(_ context.Context, stats *ghostuser.Stats) {
		if stats.UsersProcessed == 1 && last == nil {
			last = b.begin(t, "SELECT FROM users_ghost_user_migrations FOR UPDATE SKIP LOCKED")
			cancel()
		}
	}
	stats, err := b.engine.Run(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 1, stats.UsersProcessed)
	require.True(t, stats.Interrupted)
	require.NoError(t, last.Commit(t.Context()))

	b.engine.Progress = nil
	stats = b.run(t)
	require.EqualValues(t, 1, stats.UsersProcessed)
	require.EqualValues(t, 1, stats.UsersFailed)
	require.NoError(t, queued.Commit(t.Context()))
	require.EqualValues(t, 1, b.run(t).UsersDropped)
	require.Empty(t, b.queued())
}
