//go:build !race

package integration

// schemasPerShape is how many schemas TestDifferential draws of each shape, with three cases each.
const schemasPerShape = 350
