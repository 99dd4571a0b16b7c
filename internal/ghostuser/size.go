package ghostuser

import (
	"time"

	"sexton/internal/batch"
	"sexton/internal/drain"
	"sexton/internal/pace"
)

// Sizes bound the statements. Zero values stand for the defaults 50, 1000 and 100.
type Sizes struct {
	// Move, Delete and Nullify are the rows of one statement; with a Target the number that it begins with.
	Move, Delete, Nullify int
	// Target is the time that one statement should take, found by trying. 0 leaves the sizes as they are.
	Target time.Duration
	// Duty is the share of its time that a run with a target works; the rest it leaves to others. 0 and 1 are all of it.
	Duty float64
}

const (
	defaultMove    = 50
	defaultDelete  = 1000
	defaultNullify = 100
	// largestBatch bounds what a target may come to.
	largestBatch = 50_000
	// hasty bounds waits for locks without a target, while other users can be served instead.
	hasty = 200 * time.Millisecond
)

// size is the number of rows of one step's statement.
type size struct {
	rows float64
	// slow tells that even a statement with one row runs into the target's timeout: its table is just slow.
	slow bool
}

func orDefault(rows, otherwise int) float64 {
	if rows > 0 {
		return float64(rows)
	}
	return float64(otherwise)
}

// usual is the size that a step begins with, and without a target its most.
func (s Sizes) usual(do drain.Action) float64 {
	switch do {
	case drain.Move:
		return orDefault(s.Move, defaultMove)
	case drain.Remove:
		return orDefault(s.Delete, defaultDelete)
	default:
		return orDefault(s.Nullify, defaultNullify)
	}
}

// rows returns the rows of the step's next statement.
func (s Sizes) rows(of *step) int {
	if of.size.rows == 0 {
		of.size.rows = s.usual(of.Action)
	}
	return int(of.size.rows)
}

// steer bounds what a target may come to.
func (s Sizes) steer() pace.Steer {
	return pace.Steer{Target: s.Target, Smallest: 1, Largest: largestBatch}
}

// learn steers by a statement that went through. Without a target it only makes good for what timeouts have taken away.
func (s Sizes) learn(of *step, rows int64, took time.Duration) {
	switch {
	case s.Target > 0:
		of.size.rows = s.steer().Learn(of.size.rows, rows, 0, took)
	case float64(rows) >= of.size.rows/2:
		of.size.rows = min(2*of.size.rows, s.usual(of.Action))
	}
}

// shrink makes the step's statements smaller after a timeout. It reports whether there is anything left to try.
func (s Sizes) shrink(of *step) bool {
	if of.size.rows > 1 {
		of.size.rows = s.steer().TimedOut(of.size.rows)
		return true
	}
	if of.size.slow || s.Target == 0 {
		return false
	}
	of.size.slow = true
	return true
}

// limits are the timeouts of the step's next statement. One that is to wait for others, or that cannot be made any
// smaller, gets all the time that the settings allow.
func (s Sizes) limits(all batch.Limits, of *step, patient bool) batch.Limits {
	if patient {
		return all
	}
	all.LockTimeout = min(all.LockTimeout, hasty)
	if s.Target > 0 && !of.size.slow {
		all = s.steer().Limits(all)
	}
	return all
}
