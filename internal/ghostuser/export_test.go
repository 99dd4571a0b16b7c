package ghostuser

// Columns returns the labels (table.column) of everything that the plan looks at, in the
// order of the work on a hard or a soft delete.
func (p *Plan) Columns(hardDelete bool) []string {
	var labels []string
	for _, s := range p.steps(hardDelete) {
		labels = append(labels, s.label)
	}
	return labels
}
