//go:build !long || race

package pgtest

// Long reports whether tests also run the cases that differ little from others. The build
// tag long sets it; .ci/run uses that tag.
const Long = false
