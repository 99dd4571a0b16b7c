package loosefk

// ReadByRanges makes runs read the leaves of all children by so many blocks at first, as after a scan that timed out.
func (p *Parent) ReadByRanges(blocks float64) {
	for _, r := range p.References {
		r.blocks = blocks
	}
}

// CarryAtMost sets how many tombstones of a parent a run has in hand before it leaves locked ones to the next run.
func (e *Engine) CarryAtMost(tombstones int) { e.carry = tombstones }

// AdoptByPages sets how many tombstones of an unknown name are looked at together.
func (e *Engine) AdoptByPages(tombstones int) { e.page = tombstones }

// AwaitLook waits for the second look that is under way, and reports whether there is one.
func (m *Marks) AwaitLook() bool {
	look := m.longLook()
	if look == nil {
		return false
	}
	<-look.done
	return true
}
