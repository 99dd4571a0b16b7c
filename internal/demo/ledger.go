package demo

import "sync"

// ledger remembers what the application itself has deleted, so that the checks of other scenes can tell it from what
// has gone for no reason.
type ledger struct {
	mu      sync.Mutex
	deleted map[string][]int64
}

func (l *ledger) add(table string, ids []int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.deleted == nil {
		l.deleted = map[string][]int64{}
	}
	l.deleted[table] = append(l.deleted[table], ids...)
}

func (l *ledger) of(table string) []int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]int64{}, l.deleted[table]...)
}
