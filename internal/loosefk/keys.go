package loosefk

import (
	"strings"

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
