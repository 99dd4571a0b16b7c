package loosefk

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"sexton/internal/each"
)

// rescanAfter is how long cursors are trusted. A transaction that commits late leaves tombstones below them.
const rescanAfter = time.Minute

// Cursors remember, per parent, up to where a queue has been worked off, between the runs of one process. A
// queue's index keeps the entries of finished tombstones for as long as a session holds an old snapshot, and
// a look that begins at its head reads all of them: with a million, that is a tenth of a second each time.
// What is below a cursor is found by those who look from the beginning: a run after a minute or with nothing
// above the cursors, and a queue behind its barrier. The zero value is ready to use and knows nothing.
type Cursors struct {
	// Brief is for a process that ends with its pass: it begins no second look that takes longer.
	Brief bool

	mu    sync.Mutex
	above map[string]position
	// passed is, by unknown name, up to where runs have looked for tombstones of known parents.
	passed map[string]position
	// learnt is kept by database and key of a definition; Forget leaves it.
	learnt map[string]learnt
	looks  looks
	// scanned is when a run last began at the beginning.
	scanned time.Time
}

// Positions are where the parents' queues begin, as parallel arrays for SQL: the cursors or, with fresh, their very
// beginnings.
func (m *Cursors) Positions(parents []string, fresh bool) (times []pgtype.Timestamptz, ids []int64) {
	return arrays(each.Of(parents, func(parent string) position {
		if fresh {
			return beginning()
		}
		return m.of(parent)
	}))
}

// arrays are positions as parallel arrays for SQL.
func arrays(positions []position) (times []pgtype.Timestamptz, ids []int64) {
	return each.Of(positions, func(p position) pgtype.Timestamptz { return p.consumeAfter }), each.Of(positions, func(p position) int64 { return p.id })
}

// Forget makes the next run begin at the beginning.
func (m *Cursors) Forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.above, m.scanned = nil, time.Time{}
}

func (m *Cursors) of(parent string) position {
	m.mu.Lock()
	defer m.mu.Unlock()
	if at, known := m.above[parent]; known {
		return at
	}
	return beginning()
}

// start returns where a run begins, and forgets cursors that are too old to be trusted.
func (m *Cursors) start(parents []*Parent) []position {
	m.mu.Lock()
	if time.Since(m.scanned) > rescanAfter {
		m.above, m.scanned = map[string]position{}, time.Now()
	}
	m.mu.Unlock()
	return each.Of(parents, func(p *Parent) position { return m.of(p.Recorded) })
}

// keep sets the cursors of a run's queues: below whatever it has left.
func (m *Cursors) keep(queues []*queue) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.above == nil {
		m.above = map[string]position{}
	}
	for _, l := range queues {
		m.above[l.parent.Recorded] = l.done()
	}
}

// passedOver is, by unknown name, behind which tombstones a run looks for those of known parents.
func (m *Cursors) passedOver() map[string]position {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.passed == nil {
		return map[string]position{}
	}
	return maps.Clone(m.passed)
}

// passOver keeps what a run has passed over.
func (m *Cursors) passOver(passed map[string]position) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.passed = passed
}

// done is the position up to which nothing is left of what the queue has loaded.
func (l *queue) done() position {
	at := l.after
	if l.leaves && l.left.less(at) {
		at = l.left
	}
	lower := func(t tombstone) {
		if before := t.before(); before.less(at) {
			at = before
		}
	}
	for _, t := range slices.Concat(l.fresh, l.foreign) {
		lower(t)
	}
	for _, c := range l.chunks() {
		for _, t := range c.tombstones {
			lower(t)
		}
	}
	return at
}

// before is the last position that does not have the tombstone below it.
func (t tombstone) before() position { return position{t.consumeAfter, t.id - 1} }

// less orders positions as the index does; infinite times come first or last.
func (p position) less(other position) bool {
	if p.consumeAfter.InfinityModifier != other.consumeAfter.InfinityModifier {
		return p.consumeAfter.InfinityModifier < other.consumeAfter.InfinityModifier
	}
	if !p.consumeAfter.Time.Equal(other.consumeAfter.Time) {
		return p.consumeAfter.Time.Before(other.consumeAfter.Time)
	}
	return p.id < other.id
}
