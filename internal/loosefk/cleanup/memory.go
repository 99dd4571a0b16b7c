package cleanup

import (
	"sync"
	"time"

	"sexton/internal/drain"
	"sexton/internal/loosefk"
	"sexton/internal/render"
)

// Memory holds the state that the passes and due queries of one process share. The zero
// value is ready to use.
type Memory struct {
	mu      sync.Mutex
	learned map[string]*learned

	outages outages
}

// learned is the state that the passes on one database have stored.
type learned struct {
	bound *binding
	names []string
	sizes drain.Sizes
	// ran is the time at which the last pass ended.
	ran time.Time
	// rotated is the time at which the daily partitions were last created.
	rotated time.Time
	// clean reports that undo is turned off and that no database of the last pass had the
	// table undo.
	clean bool
}

// rotation reports whether the daily partitions must be created now. If so, it records
// the time, so that due is true once per rotateEvery. left reports whether partitions may
// still exist although undo is turned off.
func (m *Memory) rotation(name string) (due, left bool) {
	m.with(name, func(p *learned) {
		left = !p.clean
		if due = time.Since(p.rotated) >= rotateEvery; due {
			p.rotated = time.Now()
		}
	})
	return due, left
}

// with calls do with the state of a database. It holds the mutex during the call.
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

// take removes the binding of a database from the memory and returns it, so that no two
// passes share it. It returns nil if there is no binding.
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

// Sizes returns the sizes of chunks and pieces that passes on a database have learned.
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

// ParentNames returns the names of a database's parents as tombstones record them, or nil
// if the parents are not known yet.
func (m *Memory) ParentNames(name string) (names []string) {
	m.with(name, func(p *learned) { names = p.names })
	return names
}

// RecordedNames returns the names of parents as tombstones record them.
func RecordedNames(parents []*loosefk.Parent) []string {
	return render.Each(parents, func(parent *loosefk.Parent) string { return parent.Recorded })
}
