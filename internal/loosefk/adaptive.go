package loosefk

import (
	"context"
	"math"
	"time"

	"sexton/internal/batch"
	"sexton/internal/drain"
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
	// beside bounds a statement that cannot be made any smaller while others wait.
	beside = 1500 * time.Millisecond
	// A row that others change between snapshot and statement ends that with changedMeanwhile. It is tried again mostChanged times per chunk, and
	// each of the smaller chunks that come of it once less: a trigger may raise the same.
	changedMeanwhile, mostChanged = "40001", 2
)

// steer bounds the sizes.
func (a Adaptive) steer() pace.Steer {
	return pace.Steer{Target: a.Target, Smallest: smallestBatch, Largest: drain.LargestBatch}
}

// size is the one that steers a task's next statement.
func (r *Reference) size(how pass) *drain.Size {
	if how == direct {
		return &r.directSize
	}
	return &r.limitedSize
}

// rows are those of the next statement.
func (r *Reference) rows(how pass) int {
	rows := r.size(how).Rows(firstBatch)
	if limit := r.Definition.DeleteLimit; limit > 0 && !r.Updates() {
		return min(limit, rows)
	}
	return rows
}

// form is how a task's statement treats locked rows in a pass. The direct form, whose rows can only be guessed,
// is not for definitions with a limit of their own, nor for runs with a limit of rows.
func (r *run) form(t task, how pass) pass {
	own := t.reference.Definition.DeleteLimit > 0 && !t.reference.Updates()
	guessed := !t.reference.exactly() && !own && !r.budget.limited(t.reference)
	unindexed := r.engine.Adaptive.on() && !t.reference.Index
	switch {
	case how != direct && how != piecewise && (!unindexed || !guessed):
		return how
	case !guessed:
		return skipping
	case unindexed, how == direct && t.slow():
		// All rows of a single parent may take too long. Without an index one scan finds those of many parents.
		return piecewise
	}
	return how
}

// usual is the number of rows of a task's statement while all goes well.
func (r *run) usual(t task, how pass) int {
	if r.engine.Adaptive.on() {
		return t.reference.rows(how)
	}
	return t.reference.limit()
}

// limit is the number of rows of a task's next statement.
func (r *run) limit(t task, form pass) int {
	return r.budget.rows(t.reference, t.atMost(r.usual(t, form)))
}

// statementRows is usual for the first statement of a chunk.
func (r *run) statementRows(reference *Reference) int {
	first := task{reference: reference}
	if !r.engine.Adaptive.on() {
		return r.usual(first, skipping)
	}
	how := r.form(first, direct)
	if how == piecewise {
		return math.MaxInt // The scan finds the children of as many parents as there are.
	}
	rows := r.usual(first, how)
	for _, few := range reference.slow {
		rows = min(rows, int(few))
	}
	return rows
}

// limits are the timeouts of the task's next statement. One that waits for locks, or that cannot be made any
// smaller, gets all the time that the settings allow: its table may just be slow.
func (r *run) limits(t task, how pass) batch.Limits {
	limits := r.engine.Session.Limits
	a := r.engine.Adaptive
	switch {
	case how == waiting && r.contended:
		limits = limits.ShortWaits()
	case !a.on():
	case how != waiting && (how == direct || !t.slow()):
		limits = a.steer().Limits(limits)
	case r.contended:
		limits.StatementTimeout = min(limits.StatementTimeout, beside)
	}
	return limits
}

// steer learns from a statement that went through, and leaves others their share of the time. To plan it may have taken longer than its rows did: of
// twenty tables the first statement of one would keep those of all small.
func (r *run) steer(ctx context.Context, t task, how pass, rows int64, took time.Duration, planned bool) {
	a := r.engine.Adaptive
	t.steerSlow(a, rows, took)
	if !a.on() {
		return
	}
	if how != waiting { // What waited for others says nothing about its size.
		next := 0.0
		if how == direct {
			next = t.reference.rowsPerParent
		}
		steer, counts := r.pace.Beside(a.steer()), took
		if planned && took <= steer.Target {
			counts = min(took, steer.Target/8)
		}
		t.reference.size(how).Learn(steer, rows, next, counts)
	}
	r.pace.Breathe(ctx, took, t.reference.size(how).Slow())
}

// steerSlow finds the number of rows of a slow leaf's statements, which may be a single one.
func (t task) steerSlow(a Adaptive, rows int64, took time.Duration) {
	size, slow := t.reference.slow[t.leaf.OID]
	if !slow {
		return
	}
	if a.on() {
		size = pace.Steer{Target: a.Target, Smallest: 1, Largest: smallestBatch}.Learn(size, rows, 0, took)
	} else {
		size *= 2
	}
	if t.reference.slow[t.leaf.OID] = size; size >= smallestBatch {
		delete(t.reference.slow, t.leaf.OID)
	}
}

// adapt decides what becomes of a task whose statement failed because of its size or of others, which is no
// error yet: with fewer parents it may go through, and a parent that stands alone is worked off in pieces that
// leave out what others have locked.
func (r *run) adapt(c *chunk, t task, how pass, f batch.Fault) (nextTry, bool) {
	if !r.engine.Adaptive.on() || how == waiting {
		return giveUp, false
	}
	size, steer := t.reference.size(how), r.engine.Adaptive.steer()
	switch {
	case how == direct && f.SQLState == changedMeanwhile && (c.changed < mostChanged || len(c.tombstones) > 1):
		// Who changed the row is through with it, and a new snapshot has the change. Of fewer rows others change fewer meanwhile, and the form that
		// leaves out locked rows would come down to a statement for each parent.
		size.Lost(steer)
		if c.changed++; c.changed <= mostChanged {
			return retry, true
		}
		c.changed = 1
		return split, true
	case how != skipping && f.Lock():
		c.how = skipping
		return retry, true
	case how == direct && f.Verdict == batch.Timeout:
		size.TimedOut(steer, size.Rows(firstBatch))
		if len(c.tombstones) > 1 {
			return split, true
		}
		c.how = piecewise
		return retry, true
	case f.Verdict == batch.Timeout && !t.slow() && size.TimedOut(steer, size.Rows(firstBatch)):
		return shrink, true
	case f.Verdict == batch.Timeout && !t.slow() && t.reference.limit() == 1:
		t.slowed(1)
		return shrink, true
	}
	return giveUp, false
}
