package loosefk

import (
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// A key of one column is that column's value. A composite key is, in tombstones and in parameters, the text form of
// an array with the text forms of its columns' values. An index finds no row by that, so statements take keys
// apart and look up one after the other; the one-column forms leave a whole array to a single scan.

// label is the key's columns for people.
func (p *Parent) label() string { return strings.Join(p.KeyColumns, ", ") }

// fits reports whether a tombstone has a key of the parent's shape. With another one it comes from a time when the
// definitions named other columns.
func (p *Parent) fits(t tombstone, types *pgtype.Map) bool {
	if !p.Composite() || t.text == nil {
		return (t.integer != nil) == p.Integer
	}
	var parts []string
	err := types.Scan(pgtype.TextArrayOID, pgtype.TextFormatCode, []byte(*t.text), &parts)
	return err == nil && len(parts) == len(p.KeyColumns)
}

// keysOf returns the tombstones' keys in the form that statements take: []int64 or []string.
func keysOf(parent *Parent, tombstones []tombstone) any {
	if parent.Integer {
		return mapped(tombstones, func(t tombstone) int64 { return *t.integer })
	}
	return mapped(tombstones, func(t tombstone) string { return *t.text })
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

// mapped is never nil, which statements would take for NULL.
func mapped[T, U any](all []T, to func(T) U) []U {
	some := make([]U, len(all))
	for i, one := range all {
		some[i] = to(one)
	}
	return some
}
