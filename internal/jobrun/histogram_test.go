package jobrun_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/jobrun"
)

func TestHistogram(t *testing.T) {
	t.Parallel()
	var h jobrun.Histogram
	require.Zero(t, h.Quantile(0.5))
	for range 98 {
		h.Add(3500 * time.Microsecond)
	}
	h.Add(-time.Second)
	h.Add(90 * 24 * time.Hour)
	require.Equal(t, jobrun.Histogram{"0.001": 1, "0.004": 98, "+Inf": 1}, h)
	require.InDelta(t, 0.0035, h.Quantile(0.5), 1e-9, "evenly between 3 and 4 ms")
	require.InDelta(t, 7*24*3600, h.Quantile(1), 0, "beyond the last bound")
	var sum jobrun.Histogram
	sum.Merge(nil)
	require.Nil(t, sum)
	sum.Merge(h)
	sum.Merge(h)
	require.EqualValues(t, 200, sum.Total())
	require.True(t, slices.IsSorted(jobrun.HistogramBounds()))
}

func TestPercentiles(t *testing.T) {
	t.Parallel()
	var durations []time.Duration
	for i := 100; i > 0; i-- {
		durations = append(durations, time.Duration(i)*time.Millisecond)
	}
	require.Equal(t, jobrun.Percentiles{P50: 50, P90: 90, P99: 99, Max: 100}, jobrun.PercentilesOf(durations))
	require.Equal(t, jobrun.Percentiles{P50: 7, P90: 7, P99: 7, Max: 7},
		jobrun.PercentilesOf([]time.Duration{7 * time.Millisecond}))
	require.Equal(t, jobrun.Percentiles{}, jobrun.PercentilesOf(nil))
	require.InDelta(t, 100, jobrun.Milliseconds(durations[0]), 0, "the durations are not reordered")
	require.InDelta(t, 1.235, jobrun.Milliseconds(1234567*time.Nanosecond), 1e-9)
}
