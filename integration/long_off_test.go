//go:build !long || race

package integration

const (
	// schemasPerShare is how many schemas TestDifferential draws per share of a shape,
	// for nine cases each on average. With the tag there are enough for mix.check.
	schemasPerShare = 2
	// crashRounds is how many rounds of work and death testRandomCrashes has.
	crashRounds = 4
)
