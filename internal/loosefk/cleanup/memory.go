package cleanup

import (
	"sync"
	"time"

	"sexton/internal/drain"
	"sexton/internal/each"
	"sexton/internal/loosefk"
)

// Memory keeps what passes and looks of one process have learned. The zero value is ready to use.
type Memory struct {
	mu      sync.Mutex
	learned map[string]*learned

	outages outages
}

// learned holds what passes have learned of one database.
type learned struct {
	bound *binding
	names []string
	sizes drain.Sizes
	// ran is when the last pass ended.
	ran time.Time
	// rotated is when partitions by day were last made.
	rotated time.Time
	// clean reports that a look has found no rows that were kept before undo was switched off.
	clean bool
}

// rotates reports whether it is time to make partitions by day, and whether there may be some although nothing is kept.
func (m *Memory) rotates(name string) (due, left bool) {
	m.at(name, func(p *learned) {
		left = !p.clean
		if due = time.Since(p.rotated) >= rotateEvery; due {
			p.rotated = time.Now()
		}
	})
	return due, left
}

// at calls do with what was learned of a database, one caller at a time.
func (m *Memory) at(name string, do func(p *learned)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.learned == nil {
		m.learned = map[string]*learned{}
	}
	if m.learned[name] == nil {
		m.learned[name] = &learned{}
	}
	do(m.learned[name])
}

// take removes the binding of a database, so that no two passes share one. It returns nil where there is none.
func (m *Memory) take(name string) (kept *binding) {
	m.at(name, func(p *learned) { kept, p.bound = p.bound, nil })
	return kept
}

// keep is for the next pass, unless that had better look for itself.
func (m *Memory) keep(name string, kept *binding) {
	if !kept.partial {
		m.at(name, func(p *learned) { p.bound = kept })
	}
}

// Sizes are those that passes on a database have found.
func (m *Memory) Sizes(name string) (sizes *drain.Sizes) {
	m.at(name, func(p *learned) { sizes = &p.sizes })
	return sizes
}

// Ran notes that a pass on a database has ended now. Since returns how long ago that was.
func (m *Memory) Ran(name string) { m.at(name, func(p *learned) { p.ran = time.Now() }) }

// Since returns the time since the last pass on a database.
func (m *Memory) Since(name string) (since time.Duration) {
	m.at(name, func(p *learned) { since = time.Since(p.ran) })
	return since
}

// Note remembers which parents a database has.
func (m *Memory) Note(name string, parents []*loosefk.Parent) {
	m.at(name, func(p *learned) { p.names = Recorded(parents) })
}

// Noted are the parents of a database as its tombstones name them; nil while that is not known.
func (m *Memory) Noted(name string) (names []string) {
	m.at(name, func(p *learned) { names = p.names })
	return names
}

// ForgetOutages has the next pass try all databases again, as after the pause between two tries.
func (m *Memory) ForgetOutages() {
	m.outages.mu.Lock()
	defer m.outages.mu.Unlock()
	m.outages.known = nil
}

// Recorded are the names that tombstones of the parents carry.
func Recorded(parents []*loosefk.Parent) []string {
	return each.Of(parents, func(parent *loosefk.Parent) string { return parent.Recorded })
}
