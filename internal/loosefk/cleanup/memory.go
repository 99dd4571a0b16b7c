package cleanup

import (
	"sync"
	"time"

	"sexton/internal/drain"
	"sexton/internal/loosefk"
	"sexton/internal/render"
)

// Memory keeps what passes and due queries of one process have learned. The zero value is
// ready to use.
type Memory struct {
	mu      sync.Mutex
	learned map[string]*learned

	outages outages
}

// learned is what passes have learned about one database.
type learned struct {
	bound *binding
	names []string
	sizes drain.Sizes
	// ran is when the last pass ended.
	ran time.Time
	// rotated is when daily partitions were last created.
	rotated time.Time
	// clean reports that no rows are left that were kept before undo was turned off.
	clean bool
}

// rotates reports whether daily partitions must be created now, and whether some may be
// left although undo is turned off.
func (m *Memory) rotates(name string) (due, left bool) {
	m.with(name, func(p *learned) {
		left = !p.clean
		if due = time.Since(p.rotated) >= rotateEvery; due {
			p.rotated = time.Now()
		}
	})
	return due, left
}

// with calls do with what was learned about a database. Only one do runs at a time.
func (m *Memory) with(name string, do func(p *learned)) {
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

// take removes the binding of a database and returns it, so that no two passes share it.
// It returns nil if there is none.
func (m *Memory) take(name string) (kept *binding) {
	m.with(name, func(p *learned) { kept, p.bound = p.bound, nil })
	return kept
}

// keep stores a binding for the next pass, unless it is partial.
func (m *Memory) keep(name string, kept *binding) {
	if !kept.partial {
		m.with(name, func(p *learned) { p.bound = kept })
	}
}

// Sizes returns the sizes that passes on a database have learned.
func (m *Memory) Sizes(name string) (sizes *drain.Sizes) {
	m.with(name, func(p *learned) { sizes = &p.sizes })
	return sizes
}

// PassEnded records that a pass on a database has ended now.
func (m *Memory) PassEnded(name string) { m.with(name, func(p *learned) { p.ran = time.Now() }) }

// SinceLastPass returns the time since the last pass on a database.
func (m *Memory) SinceLastPass(name string) (since time.Duration) {
	m.with(name, func(p *learned) { since = time.Since(p.ran) })
	return since
}

// SetParents stores the names of the parents of a database.
func (m *Memory) SetParents(name string, parents []*loosefk.Parent) {
	m.with(name, func(p *learned) { p.names = RecordedNames(parents) })
}

// ParentNames returns the parents of a database as its tombstones name them, or nil if
// they are not known yet.
func (m *Memory) ParentNames(name string) (names []string) {
	m.with(name, func(p *learned) { names = p.names })
	return names
}

// ForgetOutages makes the next pass try all databases again without a pause.
func (m *Memory) ForgetOutages() {
	m.outages.mu.Lock()
	defer m.outages.mu.Unlock()
	m.outages.known = nil
}

// RecordedNames returns the names of the parents in tombstones.
func RecordedNames(parents []*loosefk.Parent) []string {
	return render.Each(parents, func(parent *loosefk.Parent) string { return parent.Recorded })
}
