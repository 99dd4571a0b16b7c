// Package each makes lists of lists.
package each

// Of returns what to makes of each value, in their order. It is never nil, which JSON and
// statements would take for null.
func Of[T, U any](all []T, to func(T) U) []U {
	made := make([]U, len(all))
	for i, one := range all {
		made[i] = to(one)
	}
	return made
}
