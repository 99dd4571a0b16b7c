package latency_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/latency"
)

func TestPercentiles(t *testing.T) {
	t.Parallel()
	var durations []time.Duration
	for i := 100; i > 0; i-- {
		durations = append(durations, time.Duration(i)*time.Millisecond)
	}
	require.Equal(t, latency.Percentiles{P50: 50, P90: 90, P99: 99, Max: 100}, latency.Of(durations))
	require.Equal(t, latency.Percentiles{P50: 7, P90: 7, P99: 7, Max: 7}, latency.Of([]time.Duration{7 * time.Millisecond}))
	require.Equal(t, latency.Percentiles{}, latency.Of(nil))
	require.InDelta(t, 100, latency.Milliseconds(durations[0]), 0, "the durations are not reordered")
	require.InDelta(t, 1.235, latency.Milliseconds(1234567*time.Nanosecond), 1e-9)
}
