package loosefk

import (
	"sexton/internal/batch"
)

// pass tells how a chunk treats rows that another transaction has locked.
type pass int

const (
	// skipping leaves locked rows for later, so that no session waits for another.
	skipping pass = iota
	// waiting waits for them under the lock timeout.
	waiting
	// direct takes all children of the chunk in one exact statement, piecewise those of a parent with too many for
	// that. Both take locks as they go, which costs much less than locking first, and give way to skipping where
	// they have to wait. They are the adaptive pace's first.
	direct
	piecewise
)

const (
	// patience is how often in a row one reference may fail by timeouts or lost connections before the run gives it up, and how often a waiting
	// pass may find nothing to wait for.
	patience = 3
	// fewestRows is the size to which a statement that times out is cut at first.
	fewestRows = 10
)

// family distinguishes references that wait for locks from references that do not, for whom one table's trouble is the same.
func (p pass) family() pass {
	if p == waiting {
		return waiting
	}
	return skipping
}

// nextTry is the next try after a statement has failed.
type nextTry int

const (
	// retry runs the same statement again, later.
	retry nextTry = iota
	// shrink runs it again with fewer rows.
	shrink
	// split runs it for fewer parents at a time, isolate for each of them alone.
	split
	isolate
	// giveUp leaves the task alone for this chunk.
	giveUp
)

// breaker knows which references have trouble in this run, so that one broken, slow or locked table cannot
// eat the time of all others.
type breaker struct {
	// broken references are given up for the run.
	broken map[lock]batch.Fault
	// misses counts single parents given up in a row because of timeouts or lost connections.
	misses map[lock]int
}

// leafTarget is one leaf as one reference sees it: another reference of the same table may be sound.
type leafTarget struct {
	reference *Reference
	leaf      uint32
}

// lock is a target in one pass: a table that cannot be waited for can still be skipped through.
type lock struct {
	leafTarget

	how pass
}

func newBreaker() *breaker {
	return &breaker{broken: map[lock]batch.Fault{}, misses: map[lock]int{}}
}

func (t task) target() leafTarget { return leafTarget{t.reference, t.leaf.OID} }

// open returns why the reference was given up in this pass, if it was.
func (b *breaker) open(t task, how pass) (batch.Fault, bool) {
	f, broken := b.broken[lock{t.target(), how.family()}]
	return f, broken
}

// atMost bounds the rows of the task's next statement, which are usually so many.
func (t task) atMost(usual int) int {
	if rows, slow := t.reference.slow[t.leaf.OID]; slow {
		return min(int(rows), usual)
	}
	return usual
}

// slow reports whether even the smallest usual statement of the task has timed out.
func (t task) slow() bool {
	_, slow := t.reference.slow[t.leaf.OID]
	return slow
}

// slowed bounds the rows of the task's next statements.
func (t task) slowed(rows int) {
	if t.reference.slow == nil {
		t.reference.slow = map[uint32]float64{}
	}
	t.reference.slow[t.leaf.OID] = float64(rows)
}

func (b *breaker) succeeded(t task) {
	delete(b.misses, lock{t.target(), skipping})
	delete(b.misses, lock{t.target(), waiting})
}

// failed decides what to try next for a chunk of so many parents.
func (b *breaker) failed(t task, how pass, f batch.Fault, parents int) nextTry {
	at := lock{t.target(), how.family()}
	switch {
	case f.Verdict == batch.Hopeless:
		b.broken[lock{t.target(), skipping}], b.broken[lock{t.target(), waiting}] = f, f
		return giveUp
	case f.Verdict == batch.Timeout && t.atMost(t.reference.limit()) > 1:
		// At once to few rows, and then to one: every try may cost another statement timeout.
		fewer := 1
		if t.atMost(t.reference.limit()) > fewestRows {
			fewer = fewestRows
		}
		t.slowed(fewer)
		return shrink
	case f.Verdict == batch.Timeout && parents > 1:
		return isolate
	case parents > 1:
		return split
	case f.Verdict == batch.Timeout, f.Verdict == batch.Fatal:
		if b.misses[at]++; b.misses[at] >= patience {
			b.broken[at] = f
		}
	}
	return giveUp
}
