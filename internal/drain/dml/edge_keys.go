package dml

import (
	"fmt"
	"strings"

	"sexton/internal/pgcatalog"
	"sexton/internal/render"
)

// Key is a column list of a table to which edges refer. The value of a one-column key is
// the column's value. In tombstones and parameters, the value of a composite key is the
// text form of an array with the text forms of its columns. No index finds a row by that
// text. So statements split composite keys and look them up one after the other, but find
// an array of one-column keys in a single scan.
type Key struct {
	pgcatalog.Table

	// KeyColumns are the columns, and KeyTypes their types as Postgres prints them.
	// KeyCompare holds the comparisons of their unique index.
	KeyColumns []string
	KeyTypes   []string
	KeyCompare []pgcatalog.Comparison
	// Integer reports that keys are stored as bigint: the key is one column of an integer
	// type. Other keys are stored as text.
	Integer bool
	// Queued is set if the keys' rows still exist and are deleted after the rows that
	// refer to them. It is a query that returns which of {keys} are still queued, and
	// locks their rows in the queue.
	Queued string
}

// Keys are the keys of one statement, which changes the rows that refer to them. Values
// is of type []int64 or []string. With CheckParent the statement skips keys that still
// have a row or, if Of.Queued is set, keys that are no longer queued.
type Keys struct {
	Of          *Key
	Values      any
	CheckParent bool
	// Keep, if set, describes how the statement saves the rows that it deletes or
	// changes.
	Keep *Kept
}

// array returns an SQL array of the keys in parameter n, without the keys that
// CheckParent excludes. The array's subquery does not depend on the outer query. So it is
// evaluated once per statement, and an index on the child is used as for a parameter.
func (k Keys) array(n int) string {
	switch {
	case !k.CheckParent:
		return k.Of.Parameter(n)
	case k.Of.Queued != "":
		return "ARRAY(" + strings.ReplaceAll(k.Of.Queued, "{keys}", k.Of.Parameter(n)) + ")"
	}
	return k.Of.WithoutParent(n)
}

// Lock returns the statement that locks the rows with the given one-column keys. Until
// the transaction ends, no native foreign key can begin to refer to these rows.
func (k *Key) Lock(keys any) (string, []any) {
	args := &Args{}
	column := "parent." + pgcatalog.Quote(k.KeyColumns[0])
	return fmt.Sprintf("SELECT FROM %s AS parent WHERE %s FOR UPDATE", k.SQL(),
		k.KeyCompare[0].Any(column, k.Parameter(args.Add(keys)))), args.Values
}

// Composite reports whether keys have several columns.
func (k *Key) Composite() bool { return len(k.KeyColumns) > 1 }

// Argument returns an ID as an argument of statements: an int64 for an integer key,
// otherwise its text form.
func (k *Key) Argument(id ID) any {
	if k.Integer {
		return id.Number()
	}
	return id.Text
}

// Parameter returns parameter n as an array of keys, with the type of the column.
// Composite keys are text, as they are stored. Integers of different width share an
// operator family, so an index on an integer column is used for a bigint array.
func (k *Key) Parameter(n int) string {
	if k.Integer {
		return fmt.Sprintf("$%d::bigint[]", n)
	}
	if k.Composite() {
		return fmt.Sprintf("$%d::pg_catalog.text[]", n)
	}
	return fmt.Sprintf("$%d::pg_catalog.text[]::%s[]", n, k.KeyTypes[0])
}

// OfTombstone returns expressions for the key in a tombstone, one per column. alias is
// the alias of the tombstone's row.
func (k *Key) OfTombstone(alias string) []string {
	switch text := alias + ".primary_key_text"; {
	case k.Integer:
		return []string{alias + ".primary_key_value"}
	case k.Composite():
		return k.Parts(text)
	default:
		return []string{text + "::" + k.KeyTypes[0]}
	}
}

// Parts returns expressions for the columns' values of a composite key. key is an SQL
// expression.
func (k *Key) Parts(key string) []string { return Parts(key, k.KeyTypes) }

// Parts returns expressions for the elements of an array in text form. Each element is
// cast to the type at its position.
func Parts(key string, types []string) []string {
	parts := make([]string, len(types))
	for i, name := range types {
		parts[i] = fmt.Sprintf("(%s::pg_catalog.text[])[%d]::%s", key, i+1, KeyType(name))
	}
	return parts
}

// KeyType returns the type in which values of a key's column are compared. Integers of
// different width share an operator family, so an index on one is used for values of
// another.
func KeyType(name string) string {
	if pgcatalog.Integer(name) {
		return "pg_catalog.int8"
	}
	return name
}

// Without returns the condition that the parent has no row with the key. Rows of tables
// that inherit from the parent count as rows of the parent: if such a row were missed,
// its children would be lost.
func (k *Key) Without(key []string) string {
	return fmt.Sprintf("NOT EXISTS (SELECT FROM %s AS parent WHERE %s OFFSET 0)", k.SQL(),
		Pairwise(k.KeyCompare, Qualified("parent", k.KeyColumns), key))
}

// WithoutParent returns an SQL array of the keys in parameter n whose parent has no row.
// OFFSET 0 in Without makes it one index lookup per key. In a join with the parent, the
// planner would read the whole parent.
func (k *Key) WithoutParent(n int) string {
	key := []string{"target.key"}
	if k.Composite() {
		key = k.Parts("target.key")
	}
	return fmt.Sprintf("ARRAY(SELECT target.key FROM pg_catalog.unnest(%s) AS target (key) WHERE %s)", k.Parameter(n),
		k.Without(key))
}

// Missing returns the query for the keys whose parent has no row. It returns them in the
// form in which they were passed, since the text of a value depends on the session.
func (k *Key) Missing(keys any) (string, []any) {
	args := &Args{}
	n := args.Add(keys)
	if k.Integer || k.Composite() {
		return fmt.Sprintf("SELECT missing.key FROM pg_catalog.unnest(%s) AS missing (key)", k.WithoutParent(n)),
			args.Values
	}
	return fmt.Sprintf(`SELECT wanted.stored
FROM ROWS FROM (pg_catalog.unnest($%d::pg_catalog.text[]), pg_catalog.unnest(%s)) AS wanted (stored, key)
WHERE %s`, n, k.Parameter(n), k.Without([]string{"wanted.key"})), args.Values
}

// Pairwise returns the condition that each value of a is equal to the value of b at the
// same position.
func Pairwise(by []pgcatalog.Comparison, a, b []string) string {
	terms := make([]string, len(a))
	for i := range a {
		terms[i] = by[i].Equal(a[i], b[i])
	}
	return strings.Join(terms, " AND ")
}

// firstBetween returns the WHERE and ORDER BY of a subquery for the first row whose
// columns equal values and that meets a further condition. The last value is compared by
// two bounds, and the rows are ordered, so that an index is used whatever the statistics
// are.
func firstBetween(by []pgcatalog.Comparison, columns, values []string, further string) string {
	last := len(columns) - 1
	condition := by[last].Between(columns[last], values[last])
	if last > 0 {
		condition = Pairwise(by[:last], columns[:last], values[:last]) + " AND " + condition
	}
	return condition + further + by[last].InOrder(columns[last]) + " OFFSET 0"
}

// Qualified returns the quoted columns of alias.
func Qualified(alias string, columns []string) []string {
	return render.Each(columns, func(column string) string { return alias + "." + pgcatalog.Quote(column) })
}
