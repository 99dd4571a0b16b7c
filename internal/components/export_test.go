package components

import (
	"slices"
)

// Add adds a component for as long as a test runs.
func Add(one *Component) (remove func()) {
	before := all
	all = append(slices.Clip(all), one)
	return func() { all = before }
}
