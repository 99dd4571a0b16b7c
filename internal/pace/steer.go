package pace

import (
	"time"

	"sexton/internal/batch"
)

const (
	// Leash is how many times its target a statement may take.
	Leash = 3
	// settling is the part of the lease that a statement near its end leaves, shortest the least time that it gets.
	settling = 300 * time.Millisecond
	shortest = 50 * time.Millisecond
	// mostGrowth bounds how much larger than the last one a statement may be that took much less than its target.
	mostGrowth = 8
)

// Steer finds the number of rows of one sort of statement that takes a certain time, by trying.
type Steer struct {
	// Target is the time that one statement should take.
	Target time.Duration
	// Smallest and Largest bound the rows.
	Smallest, Largest float64
}

// Learn returns the size after a statement that went through with so many rows: up to mostGrowth times as many while it takes much less
// than the target, twice as many while it takes less than half of it, a tenth more while it takes less, fewer in proportion when it takes
// more. If it had less than half of the rows that it might have had, it is half as many at least: it may just have been held up once, and of
// twenty tables whose statements share one set of keys, one is held up each time and would keep the others small.
// A statement that had fewer rows than it might have had says nothing about more, unless rows that have to stay together, about so
// many (next; 0 where there are none such), would not have fitted: without that a size for 2.1 of them stays for ever, as one of them is
// less than half of it.
func (s Steer) Learn(size float64, rows int64, next float64, took time.Duration) float64 {
	switch {
	case took > s.Target:
		fits := max(float64(rows), s.Smallest) * float64(s.Target) / float64(took)
		if float64(rows) < size/2 {
			fits = max(fits, size/2)
		}
		size = min(size, fits)
	case float64(rows)+next < size/2:
		return size
	case took < s.Target/2:
		size *= min(max(float64(s.Target)/(2*float64(max(took, 1))), 2), mostGrowth)
	default:
		size *= 1.1
	}
	return min(max(size, s.Smallest), s.Largest)
}

// TimedOut returns a much smaller size, as it is unknown how long the statement would have taken.
func (s Steer) TimedOut(size float64) float64 { return max(size/Leash, s.Smallest) }

// Limits cuts the timeout of a statement to what its target allows.
func (s Steer) Limits(all batch.Limits) batch.Limits {
	all.StatementTimeout = min(all.StatementTimeout, Leash*s.Target)
	return all
}

// Within cuts the timeout to what is left of a lease that ends at deadline: a statement that it ends under would count as a
// loss. The zero time is no deadline.
func Within(limits batch.Limits, deadline time.Time) batch.Limits {
	if deadline.IsZero() {
		return limits
	}
	limits.StatementTimeout = min(limits.StatementTimeout, max(time.Until(deadline)-settling, shortest))
	return limits
}
