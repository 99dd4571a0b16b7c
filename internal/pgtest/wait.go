package pgtest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	waitTimeout = 2 * time.Minute
	waitPoll    = 10 * time.Millisecond
)

// Outlast waits until somebody has waited for a lock of the session with this pid for so long. A statement timeout that is shorter
// would have ended that wait.
func Outlast(tb testing.TB, d *Database, pid uint32, longer time.Duration) {
	tb.Helper()
	WaitFor(tb, "a wait for a lock that outlasts "+longer.String(), func(ctx context.Context) (bool, error) {
		var outlasted bool
		err := d.Pool().QueryRow(ctx, `SELECT EXISTS (
			SELECT FROM pg_locks AS wanted
			WHERE NOT wanted.granted AND $1 = ANY (pg_blocking_pids(wanted.pid))
			  AND clock_timestamp() - wanted.waitstart > make_interval(secs => $2))`, int32(pid), longer.Seconds()).Scan(&outlasted)
		return outlasted, err
	})
}

// WaitFor asks again and again, every few milliseconds, until the condition holds. After two minutes, or at once if the condition returns
// an error, the test fails and names what it waited for. Only the test's own goroutine may call it.
func WaitFor(tb testing.TB, what string, condition func(ctx context.Context) (bool, error)) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), waitTimeout)
	defer cancel()
	tick := time.NewTicker(waitPoll)
	defer tick.Stop()
	for {
		ok, err := condition(ctx)
		if ok && err == nil {
			return
		}
		require.NoError(tb, ctx.Err(), "waited in vain for %s (last error: %v)", what, err)
		require.NoError(tb, err, "while waiting for %s", what)
		select {
		case <-tick.C:
		case <-ctx.Done():
			require.Failf(tb, "waited in vain", "for %s, %s long", what, waitTimeout)
		}
	}
}
