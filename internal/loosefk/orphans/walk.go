package orphans

import (
	"fmt"
	"strings"

	"sexton/internal/drain/dml"
	"sexton/internal/each"
	"sexton/internal/loosefk"
)

// walkStatement returns the next distinct keys of children behind a position, and whether each may have no parent. It goes from one key
// to the next through the index, so that a parent with a million children costs one step. The conditions are left for later: a step that
// looks for a row that meets them may have far to go. A position is the text form of a key. That of a composite key may have NULL in it: a
// stop without a key, for which the second column is NULL.
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
	steps := w.all(position, limitAt)
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
		strings.Join(w.keys, ", "), steps, key, strings.Join(keys, ", "), p.mayBeGone(r, keys), strings.Join(w.ordered(keys), ", ")), args.Values
}

type walk struct {
	reference *loosefk.Reference
	// columns are the child's, keys the names of their values; both in the order of the key.
	columns, keys []string
}

// ordered are names in the order of the index.
func (w walk) ordered(names []string) []string {
	ordered := make([]string, len(names))
	for i, at := range w.reference.Order {
		ordered[i] = names[at]
	}
	return ordered
}

// named are the child's columns under the names of the keys.
func (w walk) named() string {
	named := make([]string, len(w.columns))
	for i, column := range w.columns {
		named[i] = column + " AS " + w.keys[i]
	}
	return strings.Join(named, ", ")
}

// all reads and sorts what is behind a position.
func (w walk) all(position []string, limitAt int) string {
	where := strings.Join(w.columns, " IS NOT NULL AND ") + " IS NOT NULL"
	if position != nil {
		behind := make([]string, len(position))
		for i := range behind {
			behind[i] = strings.Join(w.jumped(i+1, position), " AND ")
		}
		where += " AND (" + strings.Join(behind, " OR ") + ")"
	}
	return fmt.Sprintf("SELECT DISTINCT %s, 0 FROM %s WHERE %s ORDER BY %s LIMIT $%d",
		w.named(), w.reference.Whole(), where, strings.Join(w.ordered(w.keys), ", "), limitAt)
}

// steps goes from one key to the next through the index.
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
		strings.Join(w.keys, ", first."), first, strings.Join(w.keys, ", next."), w.next(prefixed("walk.", w.keys)), limitAt)
}

// next is the nearest stop behind a position. It is searched for with the same value in all columns of the index but
// the last, then in all but the last two, and so on, as each of these is one look-up: one condition for all would
// walk over every child with NULL in a later column. Where there are such children alone, the stop has that NULL.
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

// jump is the first stop with another value than the position's in the index's column number length, and the same
// values in those before; without a position, the very first stop.
func (w walk) jump(length int, position []string) string {
	columns := w.ordered(w.columns)
	where := []string{columns[0] + " IS NOT NULL"}
	if position != nil {
		where = w.jumped(length, position)
	}
	return fmt.Sprintf("SELECT %s FROM %s WHERE %s ORDER BY %s LIMIT 1", w.named(), w.reference.Whole(),
		strings.Join(where, " AND "), strings.Join(columns[length-1:], ", "))
}

// jumped are the terms for rows with another value than the position's in the index's column number length, and the same
// values in those before.
func (w walk) jumped(length int, position []string) []string {
	terms := make([]string, length)
	for i, at := range w.reference.Order[:length] {
		terms[i] = w.reference.Own[at].Equal(w.columns[at], position[at])
	}
	last := w.reference.Order[length-1]
	terms[length-1] = w.columns[last] + " " + w.reference.Own[last].After + " " + position[last]
	return terms
}

func prefixed(prefix string, names []string) []string {
	return each.Of(names, func(name string) string { return prefix + name })
}
