// Package metrics counts what passes do and shows the state of the databases, for
// Prometheus. Its entry point is New.
//
//	jobrun.Runner ─► RunEnded ─► counters, histogram ─┐
//	                                                               ├─► Handler: /metrics
//	operator.Gauges ◄─ Reader, when it is scraped ─► gauges ───────┘
//
// Its one invariant: Table is the one list of metrics. Collectors are made from it, and
// documents are checked against it. Those of the Go runtime and the process are
// Prometheus's own.
//
// Counters of configured kinds and databases begin at 0, so that the first run is seen as
// an increase.
package metrics
