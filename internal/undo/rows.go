package undo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"sexton/internal/database"
	"sexton/internal/drain/dml"
	"sexton/internal/loosefk"
	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
)

// group is a list of similar sets, which one statement reads together. The rows of all
// its sets are numbered consecutively from 1.
type group struct {
	// set is the first set. All sets of the group have the same layout, saved columns and
	// changed columns.
	*set

	sets []*set
	// before holds, for each set, the number of rows in the sets before it.
	before []int32
	rows   int32
}

// groupOf returns a group of sets.
func groupOf(sets ...*set) *group {
	g := &group{}
	for _, s := range sets {
		g.add(s)
	}
	return g
}

// add adds a set, and returns the number of rows before its rows.
func (g *group) add(s *set) (before int32) {
	before = g.rows
	if g.set == nil {
		g.set = s
	}
	g.sets, g.before, g.rows = append(g.sets, s), append(g.before, before), before+s.Rows
	return before
}

// locate returns the set of a row, and the row's number in it.
func (g *group) locate(row int32) (*set, int32) {
	at, _ := slices.BinarySearch(g.before, row)
	return g.sets[at-1], row - g.before[at-1]
}

// args returns the arguments of statements on the group's rows. The fourth argument is a
// mask with true for the given rows, or NULL for all rows. A statement can look up each
// row in a mask by its number instead of searching a list.
func (g *group) args(rows []int32, more ...any) []any {
	ids, numbers := make([]int64, len(g.sets)), make([]int64, len(g.sets))
	for i, s := range g.sets {
		ids[i], numbers[i] = s.ID, s.Number
	}
	var mask []bool
	if len(rows) < int(g.rows) {
		mask = make([]bool, g.rows)
		for _, row := range rows {
			mask[row-1] = true
		}
	}
	return append([]any{ids, numbers, g.before, mask}, more...)
}

// inMask is the SQL condition that is true for the rows in the mask $4.
const inMask = "($4::pg_catalog.bool[] IS NULL OR ($4::pg_catalog.bool[])[r.ctid])"

// texts is the array type of columns whose saved values are read as texts.
const texts = "pg_catalog.text[]"

// from returns the FROM item r with the group's rows. It has the columns with the given
// indexes in the layout, or all columns. The column ctid, whose name no other column can
// have, is the row's number. array_cat decompresses the saved texts once. Without it, the
// server would decompress all of them for each column.
func (g *group) from(columns ...int) string {
	terms := []string{"u.before OPERATOR(pg_catalog.+) pg_catalog.generate_series(1, u.rows) AS ctid"}
	for i, at := range g.kept() {
		if len(columns) == 0 || slices.Contains(columns, at) {
			kept, of := fmt.Sprintf("u.c[%d]", i+1), g.Arrays[at]
			values := g.on.Names.Render(fmt.Sprintf(`"sexton".undo_value(%s, NULL::%s)`, kept, of))
			if slices.Contains([]string{"pg_catalog.text", "pg_catalog.varchar"}, g.Types[at]) {
				values = fmt.Sprintf("CASE WHEN pg_catalog.starts_with(%[1]s, %[2]s) "+
					"THEN (pg_catalog.string_to_array(%[1]s, %[2]s, %[3]s))[2:]::%[4]s ELSE %[5]s END", kept,
					dml.Separator, dml.Null, of, values)
			}
			terms = append(terms, fmt.Sprintf("pg_catalog.unnest(%s) AS %s", values, pgcatalog.Quote(g.Columns[at])))
		}
	}
	return fmt.Sprintf(`(
	SELECT %s FROM (
		SELECT packed.before, packed.rows, pg_catalog.array_cat(packed.c, '{}'::pg_catalog.text[]) AS c
		FROM (
			SELECT given.before, kept.rows, kept.c
			FROM ROWS FROM (pg_catalog.unnest($1::pg_catalog.int8[]), pg_catalog.unnest($2::pg_catalog.int8[]), pg_catalog.unnest($3::pg_catalog.int4[]))
				AS given (id, number, before)
			JOIN %s AS kept ON kept.id OPERATOR(pg_catalog.=) given.id AND kept.number OPERATOR(pg_catalog.=) given.number
			ORDER BY given.before OFFSET 0
		) AS packed OFFSET 0
	) AS u
) AS r`, strings.Join(terms, ", "), g.on.Names.Render(`"sexton".undo`))
}

// value returns an SQL expression for a column of r, converted to the type that the table
// has now.
func (g *group) value(t *table, at int, kind string) string {
	value := "r." + pgcatalog.Quote(g.Columns[at])
	if g.Arrays[at] != texts {
		return value
	}
	return t.parse(g.on.Names, value, kind)
}

// parse returns an expression that converts a saved text to a type.
func (t *table) parse(names pgcatalog.Names, kept, kind string) string {
	switch {
	case slices.Contains([]string{"pg_catalog.text", "pg_catalog.varchar"}, kind):
		return kept + "::" + kind
	// The value is converted as an array, because a domain may refuse NULL, and PL/pgSQL
	// cannot convert a text to a composite type.
	case slices.Contains(t.Wrapped, kind):
		return names.Render(fmt.Sprintf(`("sexton".undo_value(ARRAY[%s]::pg_catalog.text, NULL::%s[]))[1]`, kept, kind))
	}
	return names.Render(fmt.Sprintf(`"sexton".undo_value(%s, NULL::%s)`, kept, kind))
}

// textExpressions returns SQL expressions for the texts of values. The texts are compared
// byte by byte.
func textExpressions(values []string) []string {
	texts := make([]string, len(values))
	for i, value := range values {
		texts[i] = "pg_catalog.format('%s', " + value + `) COLLATE pg_catalog."C"`
	}
	return texts
}

// table is a table in its current form.
type table struct {
	OID     uint32
	Same    bool
	Name    string
	Numbers []int16
	Columns []string
	Types   []string
	// Wrapped holds the types of columns that are composite types or domains.
	Wrapped []string
	// Deferrable is the name of a deferrable unique key, or empty.
	Deferrable string

	keys []foreignKey
	// own holds the comparison for each column of the primary key, by column name.
	own map[string]pgcatalog.Comparison
}

type foreignKey struct {
	Name, Source, Target              string
	TargetOID                         uint32
	Only                              bool
	Columns, TargetColumns, Operators []string
	Lockable, MatchFull               bool
}

// readTable reads the current form of a layout's table. It returns nil if the table does
// not exist.
func (e *Engine) readTable(ctx context.Context, tx pgx.Tx, database string, l *layout) (*table, error) {
	found := &table{own: map[string]pgcatalog.Comparison{}}
	err := tx.QueryRow(ctx, text("table"), l.Relation, l.Name).Scan(
		&found.OID, &found.Same, &found.Name, &found.Numbers, &found.Columns, &found.Types, &found.Wrapped,
		&found.Deferrable)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil //nolint:nilnil // documented: there is no table
	}
	if err != nil {
		return nil, fmt.Errorf("read table %s: %w", l.Name, err)
	}
	keys, _ := tx.Query(ctx, text("foreign_keys"), found.OID)
	if found.keys, err = pgx.CollectRows(keys, pgx.RowToStructByPos[foreignKey]); err != nil {
		return nil, fmt.Errorf("read the foreign keys of %s: %w", l.Name, err)
	}
	operators := e.operators[database]
	if operators == nil {
		if operators, err = pgcatalog.ReadOperators(ctx, tx); err != nil {
			return nil, fmt.Errorf("read operators: %w", err)
		}
		if e.operators == nil {
			e.operators = map[string]*pgcatalog.Operators{}
		}
		e.operators[database] = operators
	}
	relations, err := pgcatalog.Read(ctx, tx, []uint32{found.OID})
	if err != nil || relations[found.OID] == nil {
		return found, problem.Doing(err, "read table %s", l.Name)
	}
	for _, column := range relations[found.OID].PrimaryKey() {
		if found.own[column], err = operators.Own(relations[found.OID].Columns[column]); err != nil {
			found.own = nil // Without a comparison for each key column, rows cannot be found by their key.
			break
		}
	}
	return found, nil
}

// currentColumn returns the current name and type of a column of a layout, or empty texts
// if it does not exist. In the same table a column is found by its number, and in another
// table by its name.
func (t *table) currentColumn(l *layout, column int) (name, kind string) {
	at := slices.Index(t.Columns, l.Columns[column])
	if t.Same {
		at = slices.Index(t.Numbers, l.Numbers[column])
	}
	if at < 0 {
		return "", ""
	}
	return t.Columns[at], t.Types[at]
}

// layoutColumn returns the index in the layout of a column of the current table, or -1 if
// the column was not saved.
func (t *table) layoutColumn(l *layout, column string) int {
	for at := range l.Columns {
		if name, _ := t.currentColumn(l, at); name == column {
			return at
		}
	}
	return -1
}

// byKey returns the indexes of the primary key's columns in the layout, and SQL
// conditions that compare a row's key with the key of the table alias other. It returns
// nil if the table has a different primary key now.
func (t *table) byKey(g *group, other string) (columns []int, terms []string) {
	for _, key := range g.KeyCols {
		at := g.column(key)
		if at < 0 {
			return nil, nil
		}
		name, kind := t.currentColumn(&g.layout, at)
		own, known := t.own[name]
		if !known || len(t.own) != len(g.KeyCols) {
			return nil, nil
		}
		columns, terms = append(columns, at), append(terms,
			own.Equal(other+"."+pgcatalog.Quote(name), g.value(t, at, kind)))
	}
	return columns, terms
}

// retyped returns a copy of the set in which a column is read as texts if its type has
// changed.
func (t *table) retyped(s *set) *set {
	one := *s
	one.Arrays = slices.Clone(s.Arrays)
	for at := range one.Arrays {
		if name, kind := t.currentColumn(&s.layout, at); name != "" && kind != s.Types[at] {
			one.Arrays[at] = texts
		}
	}
	return &one
}

// within runs do in a transaction that has the settings for saved values. do must only
// read.
func (e *Engine) within(ctx context.Context, db database.Database, do func(tx pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, db.Pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		if err := setValueSettings(ctx, tx); err != nil {
			return err
		}
		return do(tx)
	})
}

// keysOf reads the given columns of rows of a group as texts, and appends them to keys.
func (e *Engine) keysOf(ctx context.Context, g *group, columns []string, rows []int32, keys [][]*string) error {
	at, terms := make([]int, len(columns)), make([]string, len(columns))
	for i, column := range columns {
		if at[i] = g.column(column); at[i] < 0 {
			return nil // The column is not saved, so children cannot be found.
		}
		terms[i] = fmt.Sprintf("pg_catalog.array_agg(r.%s::pg_catalog.text ORDER BY r.ctid)", pgcatalog.Quote(column))
	}
	sql := fmt.Sprintf("SELECT %s FROM %s WHERE %s", strings.Join(terms, ", "), g.from(at...), inMask)
	return e.within(ctx, g.on, func(tx pgx.Tx) error {
		found, targets := make([][]*string, len(columns)), make([]any, len(columns))
		for i := range found {
			targets[i] = &found[i]
		}
		if err := tx.QueryRow(ctx, sql, g.args(rows)...).Scan(targets...); err != nil {
			return fmt.Errorf("read keys of %s: %w", g.Name, err)
		}
		for i := range found {
			keys[i] = append(keys[i], found[i]...)
		}
		return nil
	})
}

// referring returns the rows of a set whose columns Via have one of the keys.
func (e *Engine) referring(ctx context.Context, u *unit, s *set, keys [][]*string) (rows []int32, _ error) {
	s.viaExcluded = slices.ContainsFunc(s.Via, func(c string) bool { return s.column(c) < 0 })
	if s.viaExcluded {
		return nil, nil
	}
	err := e.within(ctx, s.on, func(tx pgx.Tx) error {
		child, err := e.readTable(ctx, tx, s.on.Name, &s.layout)
		if err != nil {
			return err
		}
		parent, reference := e.reference(u, s)
		g, names, terms, given := groupOf(s), make([]string, len(keys)), make([]string, len(keys)),
			make([]string, len(keys))
		args, from, via := g.args(upTo(s.Rows)), make([]string, len(keys)), make([]int, len(keys))
		for i := range keys {
			args, via[i] = append(args, keys[i]), s.column(s.Via[i])
			from[i] = fmt.Sprintf("pg_catalog.unnest($%d::pg_catalog.text[])", i+5)
			names[i], given[i] = fmt.Sprintf("k%d", i), "r."+pgcatalog.Quote(s.Via[i])
			terms[i] = given[i] + "::pg_catalog.text OPERATOR(pg_catalog.=) k." + names[i]
			if reference != nil && child != nil {
				if name, kind := child.currentColumn(&s.layout, via[i]); name == s.Via[i] && kind == s.Types[via[i]] {
					terms[i] = reference.Compare[i].Equal(g.value(child, via[i], kind),
						"k."+names[i]+"::"+parent.KeyTypes[i])
				}
			}
		}
		// num_nulls excludes forgotten rows, because a domain may refuse their NULLs.
		sql := fmt.Sprintf("SELECT r.ctid FROM %s WHERE %s AND pg_catalog.num_nulls(%s) OPERATOR(pg_catalog.=) 0 AND "+
			"EXISTS (SELECT FROM ROWS FROM (%s) AS k (%s) WHERE %s) ORDER BY 1",
			g.from(via...), inMask, strings.Join(given, ", "), strings.Join(from, ", "), strings.Join(names, ", "),
			strings.Join(terms, " AND "))
		found, _ := tx.Query(ctx, sql, args...)
		rows, err = pgx.CollectRows(found, pgx.RowTo[int32])
		return err
	})
	return rows, problem.Doing(err, "find the rows of a deletion in %s", s.Name)
}

// reference returns the definition by which the rows of a set were deleted or changed,
// and its parent, if the definition still exists.
func (e *Engine) reference(u *unit, s *set) (*loosefk.Parent, *loosefk.Reference) {
	for _, id := range s.Origins {
		for _, above := range u.above(s, id) {
			for parent, reference := range loosefk.References(e.Parents[above.on.Name]) {
				if parent.OID == above.Relation && slices.Equal(parent.KeyColumns, s.Keys) && reference.Usable() &&
					reference.Database == s.on.Name && reference.Child.OID == s.Relation &&
					slices.Equal(reference.Columns, s.Via) {
					return parent, reference
				}
			}
		}
	}
	return nil, nil
}
