// Package bench measures what Sexton costs and how fast it is. Its entry point is
// Command. Each figure is compared with a baseline of the same run, because ratios are
// comparable between machines and milliseconds are not.
//
//	sexton bench … ─► databases on a private or a given Postgres ─► Drain, Latency, Notify, Idle ─► Report: text or JSON
//
// Drain works on a Cluster: each contender gets a copy of the same data in a database of
// its own. Latency, Notify and Idle work on a Site: one database with small tables, one
// definition and a running worker.
package bench
