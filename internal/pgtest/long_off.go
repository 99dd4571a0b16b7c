//go:build !long || race

package pgtest

// Long reports that tests also run the cases that differ little from others: the build tag
// long, see .ci/run.
const Long = false
