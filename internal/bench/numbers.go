package bench

import (
	"math"
	"slices"
	"time"
)

// Percentiles of durations, in milliseconds.
type Percentiles struct {
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// percentiles takes the nearest rank. There is at least one duration.
func percentiles(durations []time.Duration) Percentiles {
	sorted := slices.Sorted(slices.Values(durations))
	at := func(share float64) float64 {
		return milliseconds(sorted[max(0, int(math.Ceil(share*float64(len(sorted))))-1)])
	}
	return Percentiles{P50: at(0.5), P90: at(0.9), P99: at(0.99), Max: at(1)}
}

// milliseconds with three digits behind the point.
func milliseconds(d time.Duration) float64 { return round(float64(d)/float64(time.Millisecond), 3) }

// median of at least one number; the lower one of two in the middle.
func median[N ~int64 | ~float64](numbers []N) N {
	return slices.Sorted(slices.Values(numbers))[(len(numbers)-1)/2]
}

// ratio is 0 where there is nothing to compare with.
func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return round(a/b, 2)
}

func round(x float64, digits int) float64 {
	scale := math.Pow10(digits)
	return math.Round(x*scale) / scale
}
