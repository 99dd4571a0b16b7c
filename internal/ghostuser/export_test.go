package ghostuser

// Columns returns the labels (table.column) of the steps of a soft or a hard delete, in
// order.
func (p *Plan) Columns(hardDelete bool) []string {
	var labels []string
	for _, s := range p.steps(hardDelete) {
		labels = append(labels, s.label)
	}
	return labels
}
