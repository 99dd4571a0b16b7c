package migrate

import "slices"

// ShapeNames returns the relations and columns in the schema sexton that migrations and functions create, sorted.
func ShapeNames() (names []string) {
	for _, c := range allComponents() {
		for _, e := range c.shape() {
			if e.tracked || c.name == River {
				continue
			}
			if len(e.columns) == 0 {
				names = append(names, e.name)
			}
			for _, column := range e.columns {
				names = append(names, e.name+"."+column)
			}
		}
	}
	slices.Sort(names)
	return names
}
