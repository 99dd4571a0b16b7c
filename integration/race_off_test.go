//go:build !race

package integration

// schemasPerShare is how many schemas TestDifferential draws per share of a shape, for nine cases each on average.
const schemasPerShare = 56
