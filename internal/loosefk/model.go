package loosefk

import (
	"iter"
	"slices"
	"strings"

	"sexton/internal/definitions"
	"sexton/internal/drain/dml"
	"sexton/internal/pgcatalog"
)

// Table identifies a relation by OID, schema and name.
type Table = pgcatalog.Table

// Parent is a tracked table with all references to it.
type Parent struct {
	dml.Key

	// Database is the configured name of the parent's database.
	Database string
	// Recorded is the name that the tracking trigger writes into tombstones.
	Recorded   string
	References []*Reference
	// keys holds the columns of the key with the comparisons of their unique index.
	keys []pgcatalog.Key
}

// HasChildrenIn reports whether the parent has children in the database of that name.
func (p *Parent) HasChildrenIn(database string) bool {
	return slices.ContainsFunc(p.References, func(r *Reference) bool { return r.Database == database })
}

// Reference is one definition bound to its parent and child tables.
type Reference struct {
	dml.Edge

	Definition definitions.Definition
	// Database is the configured name of the child's database. Remote reports that the
	// parent is in another database.
	Database string
	Remote   bool
	// Broken is the reason for which the definition cannot be used, or "". Unreachable
	// reports that the child's database could not be reached. In both cases only the
	// definition is known for certain, and no tombstone of the parent can be finished.
	Broken      string
	Unreachable bool
	// BrokenLeaves maps the OID of each leaf on which the role lacks privileges to the
	// reason. The other leaves are cleaned up.
	BrokenLeaves map[uint32]string
	// Keep, if set, describes how statements save the rows that they delete or change.
	// All edges of the reference share useReturning, see drain.Edge.UseReturning.
	Keep         *dml.Keep
	useReturning bool
	// noIndexReason is the reason for which statements cannot use any index on the
	// columns, or "".
	noIndexReason string
	// Order holds the positions of the columns in the order of an index. Stepped reports
	// that all leaves have an index in that order with all keys, so that an audit can
	// read it key by key.
	Order   []int
	Stepped bool
	// Own holds the comparison of each column with values of its own type. Types holds
	// the declared types. Bases holds the same types without length, precision and
	// domain.
	Own          []pgcatalog.Comparison
	Types, Bases []string
}

// References iterates over the references of all parents.
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

// UsableIn returns the usable references of the parents to children in one database.
func UsableIn(database string, parents []*Parent) (usable []*Reference) {
	for _, reference := range References(parents) {
		if reference.Database == database && reference.Usable() {
			usable = append(usable, reference)
		}
	}
	return usable
}

// Usable reports whether statements can be built for the reference.
func (r *Reference) Usable() bool { return r.Broken == "" && !r.Unreachable }

// label returns the names of the key's columns, separated by commas.
func (p *Parent) label() string { return strings.Join(p.KeyColumns, ", ") }
