package loosefk

import (
	"iter"
	"slices"
	"strings"

	"sexton/internal/definitions"
	"sexton/internal/drain/dml"
	"sexton/internal/pgcatalog"
)

// Table is a relation of the database.
type Table = pgcatalog.Table

// Parent is a tracked table together with everything that refers to it.
type Parent struct {
	dml.Key

	// Database is the configured name of the one that it lives in.
	Database string
	// Recorded is the name that the tracking trigger writes into tombstones.
	Recorded   string
	References []*Reference
	// keys are the columns as their unique index compares them.
	keys []pgcatalog.Key
}

// HasChildrenIn reports whether the parent has children in the database of that name.
func (p *Parent) HasChildrenIn(database string) bool {
	return slices.ContainsFunc(p.References, func(r *Reference) bool { return r.Database == database })
}

// Reference is one definition bound to the database.
type Reference struct {
	dml.Edge

	Definition definitions.Definition
	// Database is the configured name of the one that the child lives in, Remote that it is not the parent's.
	Database string
	Remote   bool
	// Broken is why the definition does not fit its database; Unreachable reports that the child's database could not be asked.
	// Either way nothing but the definition is known, and none of the parent's tombstones can be finished.
	Broken      string
	Unreachable bool
	// BrokenLeaves are the leaves that the role may not work on, by OID, with what it lacks. The others are cleaned up.
	BrokenLeaves map[uint32]string
	// Keep, if set, says how statements keep what they take.
	Keep *dml.Keep
	// unserved is why no ordinary index on the columns can serve, or "".
	unserved string
	// Order are the positions of the columns in the order of an index that an audit can go through, and Stepped reports that there is one with all
	// keys in that order, in all leaves.
	Order   []int
	Stepped bool
	// Own is how each of the columns is compared with values of its own type; Types are the declared ones, Bases the ones that those are built on.
	Own          []pgcatalog.Comparison
	Types, Bases []string
}

// References goes through those of all parents.
func References(parents []*Parent) iter.Seq2[*Parent, *Reference] {
	return func(yield func(*Parent, *Reference) bool) {
		for _, parent := range parents {
			for _, reference := range parent.References {
				if !yield(parent, reference) {
					return
				}
			}
		}
	}
}

// UsableIn are the parents' references to children in one database for which statements can be made.
func UsableIn(database string, parents []*Parent) (usable []*Reference) {
	for _, reference := range References(parents) {
		if reference.Database == database && reference.Usable() {
			usable = append(usable, reference)
		}
	}
	return usable
}

// Usable reports whether statements can be made for it.
func (r *Reference) Usable() bool { return r.Broken == "" && !r.Unreachable }

// label is the key's columns for people.
func (p *Parent) label() string { return strings.Join(p.KeyColumns, ", ") }
