package cleanup

import (
	"sync"

	"sexton/internal/loosefk"
)

// Memory keeps what passes and looks of one process have learned. The zero value is ready to use.
type Memory struct {
	// Brief is for a process that ends with its pass.
	Brief bool

	mu    sync.Mutex
	kept  map[string]*binding
	names map[string][]string
	marks map[string]*loosefk.Marks

	outages outages
}

// Close lets go of what outlives a pass, after the last one.
func (m *Memory) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, marks := range m.marks {
		marks.Close()
	}
}

// Marks are the cursors of a database's queues.
func (m *Memory) Marks(name string) *loosefk.Marks {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.marks[name] == nil {
		if m.marks == nil {
			m.marks = map[string]*loosefk.Marks{}
		}
		m.marks[name] = &loosefk.Marks{Brief: m.Brief}
	}
	return m.marks[name]
}

// Note remembers which parents a database has.
func (m *Memory) Note(name string, parents []*loosefk.Parent) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.names == nil {
		m.names = map[string][]string{}
	}
	m.names[name] = Recorded(parents)
}

// Noted are the parents of a database as its tombstones name them; nil while that is not known.
func (m *Memory) Noted(name string) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.names[name]
}

// ForgetOutages has the next pass try all databases again, as after the pause between two tries.
func (m *Memory) ForgetOutages() {
	m.outages.mu.Lock()
	defer m.outages.mu.Unlock()
	m.outages.known = nil
}

// Recorded are the names that tombstones of the parents carry.
func Recorded(parents []*loosefk.Parent) []string {
	names := make([]string, len(parents))
	for i, parent := range parents {
		names[i] = parent.Recorded
	}
	return names
}
