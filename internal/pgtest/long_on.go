//go:build long && !race

package pgtest

// Long reports that tests also take the cases that differ little from another one's: the
// build tag long, see .ci/run.
const Long = true
