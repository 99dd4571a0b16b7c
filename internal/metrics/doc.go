// Package metrics counts the results of passes and reads the state of the databases, for
// Prometheus. Its entry point is New.
//
//	jobrun.Runner ─► RunEnded ─► counters, histograms ─┐
//	                                                   ├─► Handler: /metrics
//	operator.Gauges ◄─ Reader, on a scrape ─► gauges ──┘
//
// The invariant: Table lists all metrics of Sexton. Collectors are created from Table,
// and a test compares the documentation with it. The metrics of the Go runtime and the
// process come from Prometheus's own collectors.
package metrics
