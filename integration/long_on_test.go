//go:build long && !race

package integration

const (
	schemasPerShare = 56
	crashRounds     = 80
)
