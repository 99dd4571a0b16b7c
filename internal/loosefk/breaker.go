package loosefk

import "sexton/internal/fault"

// pass tells how a chunk treats rows that another transaction has locked.
type pass int

const (
	// skipping leaves locked rows for later, so that nobody waits for anybody.
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
	// patience is how often in a row one reference may fail by timeouts before the run gives it up, how often a
	// statement may be beaten by others, and how often a waiting pass may find nothing to wait for.
	patience = 3
	// fewestRows is what a statement that times out is cut down to, at once: every further try could cost
	// another statement timeout. With success it doubles back.
	fewestRows = 10
)

// family tells those that wait for locks from those that do not, for whom one table's trouble is the same.
func (p pass) family() pass {
	if p == waiting {
		return waiting
	}
	return skipping
}

// remedy is what to try after a statement has failed.
type remedy int

const (
	// retry runs the same statement again, later.
	retry remedy = iota
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
	broken map[lock]fault.Fault
	// misses counts single parents given up in a row because of timeouts.
	misses map[lock]int
	// rows bounds the statements of references that have timed out. The bound grows again with success.
	rows map[place]int
}

// place is one leaf as one reference sees it: another reference of the same table may be sound.
type place struct {
	reference *Reference
	leaf      uint32
}

// lock is a place in one pass: a table that cannot be waited for can still be skipped through.
type lock struct {
	place

	how pass
}

func newBreaker() *breaker {
	return &breaker{broken: map[lock]fault.Fault{}, misses: map[lock]int{}, rows: map[place]int{}}
}

func (t task) place() place { return place{t.reference, t.leaf.OID} }

// open returns why the reference was given up in this pass, if it was.
func (b *breaker) open(t task, how pass) (fault.Fault, bool) {
	f, broken := b.broken[lock{t.place(), how.family()}]
	return f, broken
}

// limit bounds the rows of the task's next statement, which are usually so many.
func (b *breaker) limit(t task, usual int) int {
	if rows, slow := b.rows[t.place()]; slow {
		return min(rows, usual)
	}
	return usual
}

// slow tells whether the task's statements have timed out.
func (b *breaker) slow(t task) bool {
	_, slow := b.rows[t.place()]
	return slow
}

func (b *breaker) succeeded(t task, usual int) {
	delete(b.misses, lock{t.place(), skipping})
	delete(b.misses, lock{t.place(), waiting})
	if rows, slow := b.rows[t.place()]; slow {
		b.rows[t.place()] = min(2*rows, usual)
	}
}

// failed decides what to try next for a chunk of so many parents.
func (b *breaker) failed(t task, how pass, f fault.Fault, parents int) remedy {
	at := lock{t.place(), how.family()}
	switch {
	case f.Verdict == fault.Hopeless:
		b.broken[lock{t.place(), skipping}], b.broken[lock{t.place(), waiting}] = f, f
		return giveUp
	case f.Verdict == fault.Conflict && t.beaten < patience:
		return retry
	case f.Verdict == fault.Timeout && b.limit(t, t.reference.limit()) > fewestRows:
		b.rows[t.place()] = fewestRows
		return shrink
	case f.Verdict == fault.Timeout && parents > 1:
		return isolate
	case parents > 1:
		return split
	case f.Verdict == fault.Timeout || f.Verdict == fault.LockTimeout:
		if b.misses[at]++; b.misses[at] >= patience {
			b.broken[at] = f
		}
	}
	return giveUp
}
