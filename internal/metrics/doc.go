// Package metrics counts the results of passes and reads the state of the databases, for
// Prometheus. Its entry point is New.
//
//	jobrun.Runner ─► RunEnded ─► counters, histograms ─┐
//	                                                   ├─► Handler: /metrics
//	operator.Gauges ◄─ Reader, on a scrape ─► gauges ──┘
//
// The invariant: Table is the only list of metrics. Collectors are made from it, and a
// test compares the documents with it. The metrics of the Go runtime and the process are
// Prometheus's own.
//
// Counters of configured kinds and databases begin at 0, so that the first run counts as
// an increase.
package metrics
