package placeholder

// Labels are the columns as table.column, in the order of the configuration.
func (r *References) Labels() []string {
	labels := make([]string, len(r.columns))
	for i, c := range r.columns {
		labels[i] = c.label
	}
	return labels
}
