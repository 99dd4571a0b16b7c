package jobrun

import (
	"math"
	"slices"
	"strconv"
	"time"
)

// Percentiles contains percentiles of durations in milliseconds, with three decimal
// places.
type Percentiles struct {
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// PercentilesOf returns the nearest-rank percentiles of the durations, or zeros if there
// are no durations.
func PercentilesOf(durations []time.Duration) Percentiles {
	if len(durations) == 0 {
		return Percentiles{}
	}
	sorted := slices.Sorted(slices.Values(durations))
	percentile := func(share float64) float64 {
		return Milliseconds(sorted[max(0, int(math.Ceil(share*float64(len(sorted))))-1)])
	}
	return Percentiles{P50: percentile(0.5), P90: percentile(0.9), P99: percentile(0.99), Max: percentile(1)}
}

// HistogramBounds returns the upper bounds of a histogram's bins in seconds. Longer
// durations are in the bin "+Inf".
func HistogramBounds() []float64 {
	return []float64{
		.001, .002, .003, .004, .005, .0075, .01, .015, .02, .03, .05, .075, .1, .15, .2, .3, .5, .75,
		1, 1.5, 2, 3, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600, 4 * 3600, 24 * 3600, 7 * 24 * 3600,
	}
}

// BeyondBounds is the name of the bin for durations longer than the last bound.
const BeyondBounds = "+Inf"

// Histogram maps the upper bound of a bin in seconds to the number of durations in the
// bin. It is part of a run's JSON statistics.
type Histogram map[string]int64

// Add counts a duration. A negative duration, which occurs if the clock was set back,
// counts as 0.
func (h *Histogram) Add(d time.Duration) {
	if *h == nil {
		*h = Histogram{}
	}
	index, _ := slices.BinarySearch(HistogramBounds(), max(0, d.Seconds()))
	(*h)[bin(index)]++
}

// Merge adds the counts of another histogram.
func (h *Histogram) Merge(other Histogram) {
	if *h == nil && len(other) > 0 {
		*h = Histogram{}
	}
	for bin, n := range other {
		(*h)[bin] += n
	}
}

func bin(index int) string {
	if bounds := HistogramBounds(); index < len(bounds) {
		return strconv.FormatFloat(bounds[index], 'f', -1, 64)
	}
	return BeyondBounds
}

// Quantile returns a quantile of the durations in seconds, interpolated within its bin.
// It returns 0 for an empty histogram, and the last bound for longer durations.
func (h Histogram) Quantile(share float64) float64 {
	total := h.Total()
	rank, below, low := share*float64(total), 0.0, 0.0
	for index, bound := range HistogramBounds() {
		n := float64(h[bin(index)])
		if n > 0 && below+n >= rank {
			return low + (bound-low)*(rank-below)/n
		}
		below, low = below+n, bound
	}
	if total == 0 {
		return 0
	}
	return low
}

// Total returns the number of durations.
func (h Histogram) Total() (n int64) {
	for _, counted := range h {
		n += counted
	}
	return n
}

// Milliseconds returns a duration in milliseconds, rounded to three decimal places.
func Milliseconds(d time.Duration) float64 { return math.Round(float64(d)/1e3) / 1e3 }
