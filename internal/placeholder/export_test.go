package placeholder

// Labels returns the columns as table.column, in the order of the configuration.
func (r *References) Labels() []string {
	labels := make([]string, len(r.edges))
	for i, e := range r.edges {
		labels[i] = e.label
	}
	return labels
}
