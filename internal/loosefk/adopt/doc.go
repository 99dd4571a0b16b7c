// Package adopt proposes definitions for the foreign keys that a database has. Its entry points are Propose and WayBack.
//
//	catalogue ─► keys ─► what no definition does, or would change ─► kept, with the reason
//	               └───► a file of definitions ─► definitions.Parse, loosefk.Resolve ─► what they refuse is kept, too
//
// Its one invariant: it changes nothing, and proposes only what leaves every deletion with the same end. A key is kept where another one, which
// refuses deletions, would refuse because the rows of this one go later.
package adopt
