package ghostuser_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
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
