//go:build race

package integration

// schemasPerShare is how many schemas TestDifferential draws per share of a shape, for nine cases each on average. What
// the race detector looks for, the worker's own goroutines, is the same in every schema, and it doubles the time of each.
const schemasPerShare = 6
