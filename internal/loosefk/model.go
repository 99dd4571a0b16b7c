package loosefk

import (
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"sexton/internal/definitions"
	"sexton/internal/drain"
	"sexton/internal/each"
	"sexton/internal/pgcatalog"
)

// Table is a relation of the database.
type Table = pgcatalog.Table

// Parent is a tracked table together with everything that refers to it.
type Parent struct {
	drain.Key

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
	drain.Edge
	learnt

	Definition definitions.Definition
	// Database is the configured name of the one that the child lives in, Remote that it is not the parent's.
	Database string
	Remote   bool
	// Broken is why the definition does not fit its database; Unreachable reports that the child's database could not be asked.
	// Either way nothing but the definition is known, and none of the parent's tombstones can be finished.
	Broken      string
	Unreachable bool
	// Keep, if set, says how statements keep what they take.
	Keep *drain.Keep
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

// fits reports whether a tombstone has a key of the parent's shape. With another one it comes from a time when the
// definitions named other columns.
func (p *Parent) fits(t tombstone, types *pgtype.Map) bool {
	if (t.integer != nil) != p.Integer || (t.text != nil) == p.Integer {
		return false // The table allows both columns and neither, as each DELETE of a parent would pay for a CHECK.
	}
	if !p.Composite() {
		return true
	}
	var parts []string
	err := types.Scan(pgtype.TextArrayOID, pgtype.TextFormatCode, []byte(*t.text), &parts)
	return err == nil && len(parts) == len(p.KeyColumns)
}

// keysOf returns the tombstones' keys in the form that statements take: []int64 or []string.
func keysOf(parent *Parent, tombstones []tombstone) any {
	if parent.Integer {
		return each.Of(tombstones, func(t tombstone) int64 { return *t.integer })
	}
	return each.Of(tombstones, func(t tombstone) string { return *t.text })
}

// keysInto is a Scan that adds keys to others of the same form. Done twice, it adds them once.
func keysInto(keys *any) func(pgx.Rows) error {
	before := *keys
	return func(rows pgx.Rows) (err error) {
		switch before := before.(type) {
		case []int64:
			*keys, err = pgx.AppendRows(slices.Clip(before), rows, pgx.RowTo[int64])
		case []string:
			*keys, err = pgx.AppendRows(slices.Clip(before), rows, pgx.RowTo[string])
		}
		return err
	}
}

// keyText returns the key in text form.
func (t tombstone) keyText() string {
	if t.integer != nil {
		return strconv.FormatInt(*t.integer, 10)
	}
	return *t.text
}

// among reports whether the tombstone's key is one of keys.
func (t tombstone) among(keys any) bool {
	switch keys := keys.(type) {
	case []int64:
		return slices.Contains(keys, *t.integer)
	case []string:
		return slices.Contains(keys, *t.text)
	}
	return false
}
