// Package installation opens the databases of a configuration and binds the definitions
// to them.
//
//	config ─► Open ─► Connections ─┐
//	definition files ──────────────┼─► Bind ─► Bound ─► triggers, leases, generations
//	catalogs of the databases ─────┘
//
// Its entry points are Open, for connections alone; Bind and its variants, which resolve
// the definitions in the databases; and Install, which migrates the databases and
// installs the triggers.
//
// Its invariant is that only the jobs database, with the tables of River and Sexton, must
// be reachable. A database that is down is in Connections.Down, and Bound.Await binds it
// when it can be reached.
package installation
