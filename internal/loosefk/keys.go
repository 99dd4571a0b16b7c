package loosefk

import (
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgtype"

	"sexton/internal/pgcatalog"
)

// A key of one column is that column's value. A composite key is, in tombstones and in parameters, the text form of
// an array with the text forms of its columns' values. An index finds no row by that, so statements take keys
// apart and look up one after the other; the one-column forms leave a whole array to a single scan.

// composite reports whether keys have several columns.
func (p *Parent) composite() bool { return len(p.KeyColumns) > 1 }

// label is the key's columns for people.
func (p *Parent) label() string { return strings.Join(p.KeyColumns, ", ") }

// fits reports whether a tombstone has a key of the parent's shape. With another one it comes from a time when the
// definitions named other columns.
func (p *Parent) fits(t tombstone, types *pgtype.Map) bool {
	if !p.composite() || t.text == nil {
		return (t.integer != nil) == p.Integer
	}
	var parts []string
	err := types.Scan(pgtype.TextArrayOID, pgtype.TextFormatCode, []byte(*t.text), &parts)
	return err == nil && len(parts) == len(p.KeyColumns)
}

// keyType is the type that values of a key's column are compared in. Integers of different width share an operator
// family, so that an index on one serves values of another.
func keyType(name string) string {
	if pgcatalog.Integer(name) {
		return "pg_catalog.int8"
	}
	return name
}

// parts are the columns' values of a composite key; key is an SQL expression.
func (p *Parent) parts(key string) []string { return parts(key, p.KeyTypes) }

func parts(key string, types []string) []string {
	parts := make([]string, len(types))
	for i, name := range types {
		parts[i] = fmt.Sprintf("(%s::pg_catalog.text[])[%d]::%s", key, i+1, keyType(name))
	}
	return parts
}

// equal compares the child's columns with the values of a key, one for each.
func (r *Reference) equal(alias string, values []string) string {
	return pairwise(r.compare, qualified(alias, r.Definition.Columns), values)
}

// pairwise compares values with as many others.
func pairwise(by []pgcatalog.Comparison, a, b []string) string {
	terms := make([]string, len(a))
	for i := range a {
		terms[i] = by[i].Equal(a[i], b[i])
	}
	return strings.Join(terms, " AND ")
}

// among is true for rows of alias whose composite key is one of many. It is a filter, of which Postgres hashes the keys:
// IS TRUE keeps the planner from making a join of it, which it would have to do in nested loops.
func (p *Parent) among(r *Reference, alias, keys string) string {
	return fmt.Sprintf("EXISTS (SELECT FROM pg_catalog.unnest(%s) AS wanted (key) WHERE %s) IS TRUE", keys, r.equal(alias, p.parts("wanted.key")))
}

// lookUps joins composite keys with what is found for each of them by lookUp, which speaks of wanted.key. OFFSET 0 and
// LATERAL make the planner begin with the keys whatever statistics say of the table, where it could also read all of
// an index and compare each entry with the keys.
func lookUps(columns, keys, lookUp, lock string) string {
	return fmt.Sprintf("SELECT %s FROM pg_catalog.unnest(%s) AS wanted (key) CROSS JOIN LATERAL (%s OFFSET 0%s) AS picked WHERE true",
		columns, keys, lookUp, lock)
}

// qualified are quoted columns of alias.
func qualified(alias string, columns []string) []string {
	names := make([]string, len(columns))
	for i, column := range columns {
		names[i] = alias + "." + identifier(column)
	}
	return names
}

// lookedUp reports whether a leaf's rows are found by looking up each composite key. Without an index each of them
// would read the whole table, which can be read once for all.
func (p *Parent) lookedUp(r *Reference, leaf Table) bool { return p.composite() && r.indexed[leaf.OID] }
