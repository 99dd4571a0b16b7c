//go:build !long || race

package integration

const (
	// schemasPerShare is the number of schemas that TestDifferential draws per share of a
	// shape, with nine cases each on average. With the build tag long there are enough
	// cases for mix.check.
	schemasPerShare = 2
	// crashRounds is the maximum number of rounds of testRandomCrashes.
	crashRounds = 4
)
