package loosefk

import (
	"context"
	"time"

	"sexton/internal/batch"
	"sexton/internal/fault"
	"sexton/internal/pace"
)

// Adaptive is how the pace without row limits steers itself. The zero value is a pace with fixed limits.
type Adaptive struct {
	// Target is the time that one statement should take.
	Target time.Duration
	// Duty is the share of its time that a run works, above 0 and at most 1; the rest it leaves to others.
	Duty float64
}

func (a Adaptive) on() bool { return a.Target > 0 }

const (
	// Bounds of the rows of one statement, and what it begins with: a first statement of the wrong size runs
	// into its timeout, one that is too small only costs a commit.
	smallestBatch = 100
	firstBatch    = 200
	largestBatch  = 50_000
)

// size is the number of rows of one kind of statement that takes the target's time, found by trying.
type size struct{ rows float64 }

// of returns the rows that the next statement may have.
func (s *size) of(r *Reference) int {
	if s.rows == 0 {
		s.rows = firstBatch
	}
	if limit := r.Definition.DeleteLimit; limit > 0 && !r.Updates() {
		return min(limit, int(s.rows))
	}
	return int(s.rows)
}

// steer bounds the sizes.
func (a Adaptive) steer() pace.Steer {
	return pace.Steer{Target: a.Target, Smallest: smallestBatch, Largest: largestBatch}
}

// size is the one that steers a task's next statement.
func (r *Reference) size(how pass) *size {
	if how == direct {
		return &r.directSize
	}
	return &r.limitedSize
}

// form is how a task's statement treats locked rows in a pass. The direct form, whose rows can only be guessed,
// is not for definitions with a limit of their own, nor for runs with a limit of rows.
func (r *run) form(t task, how pass) pass {
	if how != direct && how != piecewise {
		return how
	}
	own := t.reference.Definition.DeleteLimit > 0 && !t.reference.Updates()
	if own || r.budget.limited(t.reference) {
		return skipping
	}
	return how
}

// usual is the number of rows of a task's statement while all goes well.
func (r *run) usual(t task, how pass) int {
	if r.engine.Adaptive.on() {
		return t.reference.size(how).of(t.reference)
	}
	return t.reference.limit()
}

// statementRows is usual for the first statement of a chunk.
func (r *run) statementRows(reference *Reference) int {
	first := task{reference: reference}
	if !r.engine.Adaptive.on() {
		return r.usual(first, skipping)
	}
	return r.usual(first, r.form(first, direct))
}

// limits are the timeouts of the task's next statement. One that waits for locks, or that cannot be made any
// smaller, gets all the time that the settings allow: its table may just be slow.
func (r *run) limits(t task, how pass) batch.Limits {
	limits := r.engine.Session.Limits
	if a := r.engine.Adaptive; a.on() && how != waiting && (how == direct || !r.breaker.slow(t)) {
		limits = a.steer().Limits(limits)
	}
	return limits
}

// steer learns from a statement that went through, and leaves others their share of the time.
func (r *run) steer(ctx context.Context, t task, how pass, rows int64, took time.Duration) {
	a := r.engine.Adaptive
	if !a.on() {
		return
	}
	if how != waiting { // What waited for others says nothing about its size.
		next := 0.0
		if how == direct {
			next = t.reference.rowsPerParent
		}
		size := t.reference.size(how)
		size.rows = a.steer().Learn(size.rows, rows, next, took)
	}
	r.pace.Breathe(ctx, took)
}

// adapt decides what becomes of a task whose statement failed because of its size or of others, which is no
// error yet: with fewer parents it may go through, and a parent that stands alone is worked off in pieces that
// leave out what others have locked.
func (r *run) adapt(c *chunk, t task, how pass, f fault.Fault) (remedy, bool) {
	if !r.engine.Adaptive.on() || how == waiting {
		return giveUp, false
	}
	size, steer := t.reference.size(how), r.engine.Adaptive.steer()
	switch {
	case how != skipping && (f.Verdict == fault.LockTimeout || f.Verdict == fault.Conflict):
		c.how = skipping
		return retry, true
	case how == direct && f.Verdict == fault.Timeout:
		size.rows = steer.TimedOut(size.rows)
		if len(c.tombstones) > 1 {
			return split, true
		}
		c.how = piecewise
		return retry, true
	case f.Verdict == fault.Timeout && !r.breaker.slow(t) && size.rows > smallestBatch:
		size.rows = steer.TimedOut(size.rows)
		return shrink, true
	}
	return giveUp, false
}
