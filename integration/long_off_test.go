//go:build !long || race

package integration

const (
	// schemasPerShare is how many schemas TestDifferential draws per share of a shape, for nine cases each on average: enough for mix.check
	// to find everything.
	schemasPerShare = 10
	// crashRounds is how many rounds of work and death testRandomCrashes has.
	crashRounds = 20
	// everyWay has whole-program tests also end in the ways, at the points and in the places that differ little from another one's.
	everyWay = false
)
