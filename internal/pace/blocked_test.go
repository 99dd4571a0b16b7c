package pace

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Nothing that is locked waits for longer than 15 s, and for no longer than the transaction that was seen in the way lasts.
func TestBlockedWorkComesBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b Blocked
		var all Obstacles
		for _, pause := range []time.Duration{time.Second, 2 * time.Second, 5 * time.Second, 15 * time.Second, 15 * time.Second} {
			b.Again("row locked by pid 7", "3/4")
			all.Add(&b)
			<-time.After(pause - 1)
			require.True(t, b.Waits())
			require.Equal(t, "row locked by pid 7", all.Reason())
			<-time.After(1)
			require.False(t, b.Waits())
			require.Empty(t, all.Reason())
		}

		b.Again("row locked by pid 7", "3/4")
		all.Add(&b)
		for _, over := range []bool{false, true} {
			require.NoError(t, all.Free(t.Context(), func(_ context.Context, transaction string) (bool, error) {
				require.Equal(t, "3/4", transaction)
				return over, nil
			}))
			require.Equal(t, !over, b.Waits())
			<-time.After(freeEvery)
		}
	})
}
