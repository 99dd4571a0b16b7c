package riverjobs

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
)

// generationVersion is the version of the form of entries. It changes with what an entry
// says, never with a release alone: workers of two releases with the same definitions
// have the same digest.
const generationVersion = "1"

// Generation is the meaning of a job's definitions or lists: what is done to which
// columns of which tables. It comes from the files alone. What only a catalogue says is
// the same for all workers, and changes under them all at once.
type Generation struct {
	// Kind is the job's, Kinds are all that work with it.
	Kind  string
	Kinds []string
	// Keys are the keys of the leases that its work goes on under; Prefix begins them
	// where each database has one.
	Keys   []string
	Prefix string
	// Databases are the configured names of the ones that have these leases' fences.
	Databases []string
	// Entries are the definitions, one line each, in no order of the files.
	Entries []string
	// Digest is the form in which Postgres and workers keep them.
	Digest string
}

// newGeneration completes a generation whose entries are in the order of the files.
func newGeneration(g Generation) Generation {
	slices.Sort(g.Entries)
	g.Entries = slices.Compact(g.Entries)
	sum := sha256.Sum256([]byte(strings.Join(g.Entries, "\n")))
	g.Digest = generationVersion + ":" + hex.EncodeToString(sum[:8])
	return g
}

// GenerationDigests are the generations by the keys of leases.
func GenerationDigests(generations []Generation) map[string]string {
	digests := map[string]string{}
	for _, g := range generations {
		for _, key := range g.Keys {
			digests[key] = g.Digest
		}
	}
	return digests
}
