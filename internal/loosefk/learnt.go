package loosefk

import "sexton/internal/drain"

// learnt holds what runs have found out about a reference by trying. It outlives the binding of the definitions, which every run
// with an error drops: else a run would spend its time on finding it out again.
type learnt struct {
	// rowsPerParent is a moving average over full statements; 0 means not yet known. It steers how many
	// parents one statement names.
	rowsPerParent float64
	// assumed stands for it until then: half as much after each statement that found no children; 0 before the first.
	assumed float64
	// The adaptive pace's sizes of statements.
	directSize, limitedSize drain.Size
	// slow are the rows of one statement on leaves of which even the smallest usual one has timed out, by OID. They grow with
	// success until the leaf is as others are.
	slow map[uint32]float64
	// blocks is set once a scan of a whole leaf has timed out: how many blocks one statement reads instead.
	blocks float64
	// readsLong is set once a second look has timed out, of looks that no index serves.
	readsLong bool
}

// recall gives parents what earlier runs of this process have learned about their references.
func (m *Cursors) recall(parents []*Parent) {
	m.each(parents, func(kept map[string]learnt, r *Reference) {
		if known, ok := kept[r.Database+"/"+r.Definition.Key]; ok {
			r.learnt = known
		}
		if r.Index {
			r.blocks, r.readsLong = 0, false // It may be new.
		}
	})
}

// note keeps what a run knows about the parents' references for the next one.
func (m *Cursors) note(parents []*Parent) {
	m.each(parents, func(kept map[string]learnt, r *Reference) { kept[r.Database+"/"+r.Definition.Key] = r.learnt })
}

func (m *Cursors) each(parents []*Parent, do func(kept map[string]learnt, r *Reference)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.learnt == nil {
		m.learnt = map[string]learnt{}
	}
	for _, r := range References(parents) {
		do(m.learnt, r)
	}
}
