//go:build race

package integration

// schemasPerShape is how many schemas TestDifferential draws of each shape, with three cases each. The race detector
// looks at the worker's code, not at its outcomes, and makes that several times slower; other schemas bring it nothing.
const schemasPerShape = 25
