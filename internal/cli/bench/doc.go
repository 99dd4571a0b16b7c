// Package bench measures the speed and the overhead of Sexton. Its entry point is
// Command.
//
//	sexton bench … ─► databases on a private or a given Postgres ─► Drain, Latency, Notify, Idle ─► Report: text or JSON
//
// The invariant: each figure has a baseline of the same run, because ratios are
// comparable between machines and milliseconds are not.
//
// Drain works on a Cluster: each contender gets its own database with a copy of the same
// data. Latency, Notify and Idle work on a Site: one database with small tables, one
// definition and a running worker.
package bench
