package loosefk

// ReadByRanges makes runs read the leaves of all children by so many blocks at first, as after a scan that timed out.
func (p *Parent) ReadByRanges(blocks float64) {
	for _, r := range p.References {
		r.blocks = blocks
	}
}
