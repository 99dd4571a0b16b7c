package pgtest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	waitTimeout = 30 * time.Second
	waitPoll    = 5 * time.Millisecond
)

// WaitFor asks again and again, every few milliseconds, until the condition holds. After 30 s, or at once if the condition returns
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
