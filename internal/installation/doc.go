// Package installation is an installation as the configuration describes it: its
// databases, open, with definitions and parents.
//
//	config ─► Open ─► Connections ─┐
//	definition files ──────────────┼─► Bind ─► Bound ─► triggers, leases, generations
//	catalogues of the databases ───┘
//
// Its entry points are Open, for connections alone; Bind and its kin, which hold
// definitions against the databases; and Install, which brings databases to the state
// that a worker needs.
//
// Its one invariant: only the jobs database, with River's and Sexton's own tables, must
// be there. Every other database may be down: it is noted in Connections.Down, and
// Bound.Await takes it in when it is back.
package installation
