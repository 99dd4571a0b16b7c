package lease

import "time"

// Pass stands for the passing of time by the clock of this process, since leases of others were last seen to change.
func (m *Manager) Pass(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, seen := range m.seen {
		seen.since = seen.since.Add(-d)
		m.seen[key] = seen
	}
}
