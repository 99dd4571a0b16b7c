//go:build long && !race

package pgtest

// Long reports whether tests run all cases, including those that differ little from
// others. The build tag long sets Long; .ci/run uses that tag.
const Long = true
