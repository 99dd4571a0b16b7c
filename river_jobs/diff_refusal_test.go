package riverjobs

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRefusalsPauseTogether(t *testing.T) {
	t.Parallel()
	var r backOff
	now := time.Now()
	require.Zero(t, r.wait(now))
	require.True(t, r.begin(now))
	require.False(t, r.begin(now.Add(time.Second)), "one that was at work already")
	require.Equal(t, 9*time.Second, r.wait(now.Add(time.Second)))
	now = now.Add(firstPause)
	require.Zero(t, r.wait(now))
	require.True(t, r.begin(now))
	require.Equal(t, 20*time.Second, r.wait(now))
	for range 20 {
		now = now.Add(longestPause)
		require.True(t, r.begin(now))
	}
	require.Equal(t, longestPause, r.wait(now))
	r.end()
	require.Zero(t, r.wait(now))
	require.True(t, r.begin(now))
	require.Equal(t, firstPause, r.wait(now))
}
