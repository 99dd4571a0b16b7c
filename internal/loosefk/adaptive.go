package loosefk

import (
	"context"
	"time"

	"sexton/internal/batch"
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
	// leash is how many times its target a statement may take.
	leash = 3
	// lockLeash is the same for one wait for a lock. It is shorter: of two that end together the server reports the
	// statement's, and a statement that was held up would pass for one that is too big.
	lockLeash = 2
	// longestPause bounds one pause of the duty cycle.
	longestPause = time.Second
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

// learn steers by a statement that went through: twice as many rows while it takes less than half of the
// target, a tenth more while it takes less, fewer in proportion when it takes more. A statement that had
// fewer rows than it might have had says nothing about more: unless another parent, with about so many rows (next), would not
// have fitted. Without that a size for 2.1 parents stays for ever, as one parent is less than half of it.
func (s *size) learn(rows int64, next float64, took, target time.Duration) {
	switch {
	case took > target:
		s.rows = min(s.rows, max(float64(rows), smallestBatch)*float64(target)/float64(took))
	case float64(rows)+next < s.rows/2:
		return
	case took < target/2:
		s.rows *= 2
	default:
		s.rows *= 1.1
	}
	s.rows = min(max(s.rows, smallestBatch), largestBatch)
}

// timedOut makes it much smaller, as nobody knows how long the statement would have taken.
func (s *size) timedOut() { s.rows = max(s.rows/leash, smallestBatch) }

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
		limits.StatementTimeout = min(limits.StatementTimeout, leash*a.Target)
		limits.LockTimeout = min(limits.LockTimeout, lockLeash*a.Target)
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
		t.reference.size(how).learn(rows, next, took, a.Target)
	}
	r.breathe(ctx, took)
}

// breathe pauses once enough time is owed, so that no more than the duty's share is work. A single small
// statement is followed by no pause: there may be nothing behind it.
func (r *run) breathe(ctx context.Context, took time.Duration) {
	a := r.engine.Adaptive
	if a.Duty >= 1 {
		return
	}
	r.owed += time.Duration(float64(took) * (1/a.Duty - 1))
	if r.owed < a.Target/2 {
		return
	}
	owed := min(r.owed, longestPause)
	r.owed = 0
	r.pause(ctx, owed)
}

// adapt decides what becomes of a task whose statement failed because of its size or of others, which is no
// error yet: with fewer parents it may go through, and a parent that stands alone is worked off in pieces that
// leave out what others have locked.
func (r *run) adapt(c *chunk, t task, how pass, f failure) (remedy, bool) {
	if !r.engine.Adaptive.on() || how == waiting {
		return giveUp, false
	}
	size := t.reference.size(how)
	switch {
	case how != skipping && (f.verdict == lockTimeout || f.verdict == conflict):
		c.how = skipping
		return retry, true
	case how == direct && f.verdict == timeout:
		size.timedOut()
		if len(c.tombstones) > 1 {
			return split, true
		}
		c.how = piecewise
		return retry, true
	case f.verdict == timeout && !r.breaker.slow(t) && size.rows > smallestBatch:
		size.timedOut()
		return shrink, true
	}
	return giveUp, false
}
