package ghostuser

import (
	"cmp"
	"time"

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
	// anyTime is the target of statements without one: only timeouts make them smaller, and success as big as they were.
	anyTime = 24 * time.Hour
)

// usual is the size that statements begin with, and without a target their most.
func (s Sizes) usual(do drain.Action) int {
	switch do {
	case drain.Move:
		return cmp.Or(max(s.Move, 0), 50)
	case drain.Remove:
		return cmp.Or(max(s.Delete, 0), 1000)
	default:
		return cmp.Or(max(s.Nullify, 0), 100)
	}
}

// ladder is the way through rows of the step.
func (s Sizes) ladder(of *step, waits bool) *drain.Ladder {
	steer := pace.Steer{Target: s.Target, Smallest: 1, Largest: drain.LargestBatch}
	if s.Target == 0 {
		steer.Target, steer.Largest = anyTime, float64(s.usual(of.Action))
	}
	return &drain.Ladder{Size: &of.size, Steer: steer, First: s.usual(of.Action), Waits: waits}
}

// rows returns the rows of the step's next statement.
func (s Sizes) rows(of *step) int { return of.size.Rows(s.usual(of.Action)) }
