package riverjobs

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
)

// generationVersion is the version of the format of entries. It changes only with the
// format, so that workers of two releases with the same definitions have the same digest.
const generationVersion = "1"

// Generation is the meaning of a job's definitions or lists: the action for each column
// of each table. It depends only on the files, because all workers have the same catalog.
type Generation struct {
	// Kind is the kind that has the definitions or lists. Kinds are all kinds that use
	// them.
	Kind  string
	Kinds []string
	// Keys are the lease keys of the kind's passes. Prefix is their common prefix if each
	// database has its own lease.
	Keys   []string
	Prefix string
	// Databases are the configured names of the databases that store the fences of these
	// leases.
	Databases []string
	// Entries are the definitions, one line each, sorted.
	Entries []string
	// Digest is the hash of the entries. Workers and databases compare generations by
	// their digests.
	Digest string
}

// newGeneration returns g with sorted entries and their digest.
func newGeneration(g Generation) Generation {
	slices.Sort(g.Entries)
	g.Entries = slices.Compact(g.Entries)
	sum := sha256.Sum256([]byte(strings.Join(g.Entries, "\n")))
	g.Digest = generationVersion + ":" + hex.EncodeToString(sum[:8])
	return g
}

// GenerationDigests returns the digests by lease key.
func GenerationDigests(generations []Generation) map[string]string {
	digests := map[string]string{}
	for _, g := range generations {
		for _, key := range g.Keys {
			digests[key] = g.Digest
		}
	}
	return digests
}
