package jobrun

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestOneLinePerHolderAndMinute(t *testing.T) {
	t.Parallel()
	var r Runner
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	count := func(key, holder string) (int, bool) { return r.countHeld(holding{key, holder}, now) }
	for i := range 60 {
		leftOut, write := count("lease", "one")
		require.Equal(t, i == 0, write, "second %d", i)
		require.Zero(t, leftOut)
		now = now.Add(time.Second)
	}
	leftOut, write := count("lease", "one")
	require.True(t, write)
	require.Equal(t, 59, leftOut)
	_, write = count("lease", "two")
	require.True(t, write, "another holder")
	_, write = count("other", "one")
	require.True(t, write, "another lease")

	now = now.Add(2 * heldEvery)
	_, write = count("lease", "three")
	require.True(t, write)
	require.Len(t, r.held, 1, "what is over is forgotten")
}
