// Package latency sums up how long things took.
package latency

import (
	"math"
	"slices"
	"time"
)

// Percentiles of durations, in milliseconds with three digits behind the point.
type Percentiles struct {
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// Of takes the nearest rank. All are 0 where there are no durations.
func Of(durations []time.Duration) Percentiles {
	if len(durations) == 0 {
		return Percentiles{}
	}
	sorted := slices.Sorted(slices.Values(durations))
	at := func(share float64) float64 {
		return Milliseconds(sorted[max(0, int(math.Ceil(share*float64(len(sorted))))-1)])
	}
	return Percentiles{P50: at(0.5), P90: at(0.9), P99: at(0.99), Max: at(1)}
}

// Milliseconds rounds to three digits behind the point.
func Milliseconds(d time.Duration) float64 { return math.Round(float64(d)/1e3) / 1e3 }
