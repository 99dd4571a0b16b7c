package orphans

import (
	"fmt"
	"strings"

	"sexton/internal/drain/dml"
	"sexton/internal/loosefk"
	"sexton/internal/render"
)

// walkStatement returns the query for the next distinct keys of children after a
// position, and whether each key may have no parent. The query follows the index from one
// key to the next, so a parent with a million children takes one step. It does not check
// the definition's conditions: a search for a row that meets them could read many rows.
//
// A position is the text form of a key. In a position of a composite key, columns may be
// NULL. The second column of the result is NULL for such a position, because it is not a
// key.
func (p keyed) walkStatement(r *loosefk.Reference, after *string, limit int) (string, []any) {
	w := walk{reference: r, columns: dml.Qualified("child", r.Definition.Columns)}
	w.keys = make([]string, len(w.columns))
	for i := range w.keys {
		w.keys[i] = fmt.Sprintf("k%d", i+1)
	}
	args := &dml.Args{}
	var position []string
	if after != nil {
		text := fmt.Sprintf("$%d::pg_catalog.text", args.Add(*after))
		if position = dml.Parts(text, r.Bases); !p.Composite() {
			position = []string{text + "::" + dml.KeyType(r.Bases[0])}
		}
	}
	limitAt := args.Add(limit)
	steps := w.allKeys(position, limitAt)
	if r.Stepped {
		steps = w.steps(position, limitAt)
	}
	keys := prefixed("walk.", w.keys)
	key := strings.Join(keys, "::pg_catalog.text, ") + "::pg_catalog.text"
	if p.Composite() {
		key = "ARRAY[" + key + "]::pg_catalog.text"
	}
	return fmt.Sprintf("WITH RECURSIVE walk (%s, step) AS (\n%s\n)\nSELECT %s, "+
		"CASE WHEN pg_catalog.num_nulls(%s) OPERATOR(pg_catalog.=) 0 THEN %s END\nFROM walk ORDER BY %s",
		strings.Join(w.keys, ", "), steps, key, strings.Join(keys, ", "), p.mayLackParent(r, keys),
		strings.Join(w.ordered(keys), ", ")), args.Values
}

type walk struct {
	reference *loosefk.Reference
	// columns are the child's columns. keys are the aliases of the values in columns.
	// Both are in the order of the definition.
	columns, keys []string
}

// ordered returns names in the order of the index.
func (w walk) ordered(names []string) []string {
	ordered := make([]string, len(names))
	for i, at := range w.reference.Order {
		ordered[i] = names[at]
	}
	return ordered
}

// selectList returns the child's columns, each with the name of its key as alias.
func (w walk) selectList() string {
	named := make([]string, len(w.columns))
	for i, column := range w.columns {
		named[i] = column + " AS " + w.keys[i]
	}
	return strings.Join(named, ", ")
}

// allKeys returns the query that reads and sorts all keys after a position.
func (w walk) allKeys(position []string, limitAt int) string {
	where := strings.Join(w.columns, " IS NOT NULL AND ") + " IS NOT NULL"
	if position != nil {
		later := make([]string, len(position))
		for i := range later {
			later[i] = strings.Join(w.jumpConditions(i+1, position), " AND ")
		}
		where += " AND (" + strings.Join(later, " OR ") + ")"
	}
	return fmt.Sprintf("SELECT DISTINCT %s, 0 FROM %s WHERE %s ORDER BY %s LIMIT $%d",
		w.selectList(), w.reference.FromItem(), where, strings.Join(w.ordered(w.keys), ", "), limitAt)
}

// steps returns the recursive query that follows the index from one key to the next.
func (w walk) steps(position []string, limitAt int) string {
	first := w.jump(1, nil)
	if position != nil {
		first = w.next(position)
	}
	return fmt.Sprintf(`(SELECT first.%s, 1 FROM (%s) AS first)
UNION ALL
SELECT next.%s, walk.step OPERATOR(pg_catalog.+) 1
FROM walk
CROSS JOIN LATERAL (%s) AS next
WHERE walk.step OPERATOR(pg_catalog.<) $%d`,
		strings.Join(w.keys, ", first."), first, strings.Join(w.keys, ", next."), w.next(prefixed("walk.", w.keys)),
		limitAt)
}

// next returns the query for the first position after a given position. It searches with
// the position's values in all columns of the index but the last, then in all but the
// last two, and so on. Each search is one index lookup. A single condition for all
// searches would read every child with NULL in a later column. If there are only such
// children, the query returns a position with that NULL.
func (w walk) next(position []string) string {
	if len(w.columns) == 1 {
		return w.jump(1, position)
	}
	jumps := make([]string, len(w.columns))
	for i := range jumps {
		length := len(w.columns) - i
		jumps[i] = fmt.Sprintf("(SELECT stop.*, %d AS place FROM (%s) AS stop)", i, w.jump(length, position))
	}
	return fmt.Sprintf("SELECT * FROM (%s) AS stop ORDER BY stop.place LIMIT 1", strings.Join(jumps, "\nUNION ALL "))
}

// jump returns the query for the first position that is greater than the given one in
// column number length of the index. In the columns before, both positions have the same
// values. If position is nil, the query returns the first position of the index.
func (w walk) jump(length int, position []string) string {
	columns := w.ordered(w.columns)
	where := []string{columns[0] + " IS NOT NULL"}
	if position != nil {
		where = w.jumpConditions(length, position)
	}
	return fmt.Sprintf("SELECT %s FROM %s WHERE %s ORDER BY %s LIMIT 1", w.selectList(), w.reference.FromItem(),
		strings.Join(where, " AND "), strings.Join(columns[length-1:], ", "))
}

// jumpConditions returns the WHERE conditions of jump for a position.
func (w walk) jumpConditions(length int, position []string) []string {
	terms := make([]string, length)
	for i, at := range w.reference.Order[:length] {
		terms[i] = w.reference.Own[at].Equal(w.columns[at], position[at])
	}
	last := w.reference.Order[length-1]
	terms[length-1] = w.columns[last] + " " + w.reference.Own[last].After + " " + position[last]
	return terms
}

func prefixed(prefix string, names []string) []string {
	return render.Each(names, func(name string) string { return prefix + name })
}
