// Package loosefk cleans up the children of deleted parents: the asynchronous counterpart of ON DELETE
// CASCADE and ON DELETE SET NULL.
//
// A trigger on each parent leaves one tombstone per deleted row. Resolve checks the definitions against a
// database and binds them to its tables; Engine.Run then loads tombstones, works the children off in small
// transactions and removes each tombstone in the transaction of its last batch.
package loosefk

import (
	"slices"

	"sexton/internal/definitions"
	"sexton/internal/pgcatalog"
)

// Table is a relation of the database.
type Table = pgcatalog.Table

// Parent is a tracked table together with everything that refers to it.
type Parent struct {
	Table
	// Database is the configured name of the one that it lives in.
	Database string
	// Recorded is the name that the tracking trigger writes into tombstones.
	Recorded string
	// KeyColumns are the referenced columns, KeyTypes their types as Postgres prints them.
	KeyColumns []string
	KeyTypes   []string
	// keys are the columns as their unique index compares them, compare how that is written.
	keys    []pgcatalog.Key
	compare []pgcatalog.Comparison
	// Integer tells that keys are stored as bigint, those of a single column of an integer type; all others are
	// stored as text.
	Integer    bool
	References []*Reference
}

// HasChildrenIn reports whether the parent has children in the database of that name.
func (p *Parent) HasChildrenIn(database string) bool {
	return slices.ContainsFunc(p.References, func(r *Reference) bool { return r.Database == database })
}

// Reference is one definition bound to the database.
type Reference struct {
	learnt

	Definition definitions.Definition
	// Database is the configured name of the one that the child lives in, Remote that it is not the parent's.
	Database string
	Remote   bool
	// Broken is why the definition does not fit its database; Unreachable tells that the child's database could not be asked.
	// Either way nothing but the definition is known, and none of the parent's tombstones can be finished.
	Broken      string
	Unreachable bool
	Child       Table
	// Leaves are the tables that statements address: the child itself, or the leaf partitions below it.
	// Row pointers (ctid) mean nothing across partitions.
	Leaves []Table
	// Conditions and Target carry the types that their text values are cast to.
	Conditions []typedColumn
	Target     typedColumn
	// PrimaryKey lists the child's key columns in order; empty where it has none.
	PrimaryKey []string
	// Index is false where no index leads to the rows by the columns, so that each statement reads the whole table.
	Index bool
	// unserved is why no ordinary index on the columns can do so, or "".
	unserved string
	// indexed are the leaves in which an index does so, order the places of the columns in the order of one that an audit
	// can go through, and stepped tells that there is one with all keys in that order, in all leaves.
	indexed map[uint32]bool
	order   []int
	stepped bool

	// compare is how each of the columns is compared with the parent's, own how with values of its own type; types are the
	// declared ones, bases what those are built on.
	compare, own []pgcatalog.Comparison
	types, bases []string
	// moves tells that what is written decides the partition, so that rows are written through the partitioned table.
	moves bool
}

// typedColumn is a value and the column that it is compared with or written to.
type typedColumn struct {
	Column string
	// Type is the column's declared type, base the same without length, precision and domain.
	Type    string
	base    string
	compare pgcatalog.Comparison
	Value   string
}

// Updates reports whether the reference changes children instead of deleting them.
func (r *Reference) Updates() bool { return r.Definition.OnDelete != definitions.Delete }

// usable reports whether statements can be made for it.
func (r *Reference) usable() bool { return r.Broken == "" && !r.Unreachable }

func (r *Reference) partitioned() bool { return len(r.Leaves) != 1 || r.Leaves[0].OID != r.Child.OID }
