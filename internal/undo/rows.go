package undo

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"sexton/internal/database"
	"sexton/internal/dbsqlc"
	"sexton/internal/drain"
	"sexton/internal/loosefk"
	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
)

// shape is a table as it is now, for the sets of one layout.
type shape struct {
	OID     uint32
	Same    bool
	Name    string
	Numbers []int16
	Columns []string
	Types   []string
	// Rules may put rows into other tables.
	Rules bool
	// Deferrable is a unique key of the table that may be deferred.
	Deferrable string

	keys []foreignKey
	// own compares the columns of the primary key.
	own map[string]pgcatalog.Comparison
}

type shapeKey struct {
	database string
	layout   int64
}

type foreignKey struct {
	Name, Source, Target       string
	Other                      uint32
	Only                       bool
	Columns, Others, Operators []string
	Lockable, Whole            bool
}

// shape reads the table of a set; nil where it is gone.
func (e *Engine) shape(ctx context.Context, s *set) (*shape, error) {
	at := shapeKey{s.on.Name, s.layout.ID}
	if known, found := e.shapes[at]; found {
		return known, nil
	}
	found := &shape{own: map[string]pgcatalog.Comparison{}}
	err := pgcatalog.Settled(ctx, s.on.Pool, func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx, text("table"), s.Relation, s.Name).Scan(found.targets()...)
		if errors.Is(err, pgx.ErrNoRows) {
			found = nil
			return nil
		}
		if err != nil {
			return err
		}
		keys, _ := tx.Query(ctx, text("foreign_keys"), found.OID)
		if found.keys, err = pgx.CollectRows(keys, pgx.RowToStructByPos[foreignKey]); err != nil {
			return err
		}
		return e.compare(ctx, tx, found, s.on.Name)
	})
	if err != nil {
		return nil, fmt.Errorf("read table %s: %w", s.Name, err)
	}
	e.shapes[at] = found
	return found, nil
}

func (f *shape) targets() []any {
	return []any{&f.OID, &f.Same, &f.Name, &f.Numbers, &f.Columns, &f.Types, &f.Rules, &f.Deferrable}
}

// errChanged has a table read again.
var errChanged = errors.New("the table was changed meanwhile")

// same queues the look whether the table is still as it was read, by a statement behind one that has locked it.
func (f *shape) same(all *pgx.Batch, s *set) {
	now := &shape{own: f.own}
	all.Queue(text("table"), s.Relation, s.Name).QueryRow(func(row pgx.Row) error { return row.Scan(now.targets()...) })
	all.Queue(text("foreign_keys"), f.OID).Query(func(rows pgx.Rows) (err error) {
		now.keys, err = pgx.CollectRows(rows, pgx.RowToStructByPos[foreignKey])
		if err == nil && !reflect.DeepEqual(now, f) {
			err = errChanged
		}
		return err
	})
}

func (e *Engine) compare(ctx context.Context, db dbsqlc.DBTX, f *shape, database string) (err error) {
	operators := e.operators[database]
	if operators == nil {
		if operators, err = pgcatalog.ReadOperators(ctx, db); err != nil {
			return fmt.Errorf("read operators: %w", err)
		}
		e.operators[database] = operators
	}
	relations, err := pgcatalog.Read(ctx, db, []uint32{f.OID})
	if err != nil || relations[f.OID] == nil {
		return err
	}
	for _, column := range relations[f.OID].PrimaryKey() {
		if f.own[column], err = operators.Own(relations[f.OID].Columns[column]); err != nil {
			f.own = nil // Part of a key tells no rows apart.
			break
		}
	}
	return nil
}

// present is the name and type that a kept column has now; empty where it is gone. A column keeps its number in its table, and its name in another one.
func (f *shape) present(l *layout, column int) (name, kind string) {
	at := slices.Index(f.Columns, l.Columns[column])
	if f.Same {
		at = slices.Index(f.Numbers, l.Numbers[column])
	}
	if at < 0 {
		return "", ""
	}
	return f.Columns[at], f.Types[at]
}

// column is the place of a column in the layout, or -1.
func (s *set) column(name string) int { return slices.Index(s.Columns, name) }

// byKey are the places of the primary key's columns, with terms that compare those of other with them; none where the table has another key by now.
func (s *set) byKey(f *shape, other string) (columns []int, terms []string) {
	for _, key := range s.KeyCols {
		at := s.column(key)
		if at < 0 {
			return nil, nil
		}
		name, kind := f.present(&s.layout, at)
		own, known := f.own[name]
		if !known || len(f.own) != len(s.KeyCols) {
			return nil, nil
		}
		columns, terms = append(columns, at), append(terms, own.Equal(other+"."+pgcatalog.Quote(name), s.value(at, kind)))
	}
	return columns, terms
}

// kept are the places in the layout of the columns that the set has.
func (s *set) kept() []int {
	var places []int
	if len(s.Fields) == 0 {
		for i := range s.Columns {
			places = append(places, i)
		}
	}
	for _, field := range s.Fields {
		places = append(places, s.column(field))
	}
	return places
}

// rows are those of the set $1, $2, as an item of a FROM clause called r, with the columns at those places in the layout, or all. Their places are in
// ctid. SELECT lists take values of composite types apart from one another, and not into columns. The concatenation has what is kept unpacked once,
// where each column would unpack all of it.
func (s *set) rows(columns ...int) string {
	return s.of([]string{numbering}, columns)
}

// numbering has the places of rows in ctid.
const numbering = "pg_catalog.generate_series(1, u.rows) AS ctid"

// of are the rows with those terms before their columns.
func (s *set) of(terms []string, columns []int) string {
	for i, at := range s.kept() {
		if len(columns) == 0 || slices.Contains(columns, at) {
			kept := fmt.Sprintf("u.c[%d]", i+1)
			values := kept + "::" + s.Arrays[at]
			if slices.Contains([]string{"pg_catalog.text", "pg_catalog.varchar"}, s.Types[at]) {
				values = fmt.Sprintf("CASE WHEN pg_catalog.starts_with(%[1]s, %[2]s) "+
					"THEN (pg_catalog.string_to_array(%[1]s, %[2]s, %[3]s))[2:]::%[4]s ELSE %[5]s END", kept, drain.Separator, drain.Null, s.Arrays[at], values)
			}
			terms = append(terms, fmt.Sprintf("pg_catalog.unnest(%s) AS %s", values, pgcatalog.Quote(s.Columns[at])))
		}
	}
	return fmt.Sprintf(`(
	SELECT %s FROM (
		SELECT kept.number, kept.rows, pg_catalog.array_cat(kept.c, '{}'::pg_catalog.text[]) AS c
		FROM %s AS kept
		WHERE %s OFFSET 0
	) AS u
) AS r`,
		strings.Join(terms, ", "), s.on.Names.Render(`"sexton".undo`), s.are("kept"))
}

// are is the condition for the row of the set, or of the sets that it stands for, behind skip other parameters.
func (s *set) are(alias string) string {
	const is = "%s.%s OPERATOR(pg_catalog.=) ANY ($%d::pg_catalog.int8[])"
	return fmt.Sprintf(is+" AND "+is, alias, "id", s.skip+1, alias, "number", s.skip+2)
}

// args are the arguments of statements on rows: the set, or the sets that it stands for.
func (s *set) args(more ...any) []any {
	ids, numbers := []int64{s.ID}, []int64{s.Number}
	for _, other := range s.others {
		ids, numbers = append(ids, other.ID), append(numbers, other.Number)
	}
	return append([]any{ids, numbers}, more...)
}

// mask has true at the places of rows; nil is all of them. A statement looks each of its rows up in it at once, where it would go through a list.
func (s *set) mask(places []int32) []bool {
	if len(places) == int(s.Rows) {
		return nil
	}
	mask := make([]bool, s.Rows)
	for _, place := range places {
		mask[place-1] = true
	}
	return mask
}

// among is the condition for rows at the places of the mask $3.
const among = "($3::pg_catalog.bool[] IS NULL OR ($3::pg_catalog.bool[])[r.ctid])"

// texts is the type of what is kept of a column whose values are kept as texts.
const texts = "pg_catalog.text[]"

// value is a column of r in its type.
func (s *set) value(at int, kind string) string {
	value := "r." + pgcatalog.Quote(s.Columns[at])
	if kind != s.Types[at] && s.Arrays[at] != texts {
		value += "::pg_catalog.text"
	}
	return value + "::" + kind
}

// within runs do in a transaction that reads values as they were written.
func (e *Engine) within(ctx context.Context, db database.Database, do func(tx pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, db.Pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, text("settings"), false, e.StatementTimeout.Milliseconds()); err != nil {
			return fmt.Errorf("settle transaction: %w", err)
		}
		return do(tx)
	})
}

// keysOf adds the text forms of columns of a set's rows.
func (e *Engine) keysOf(ctx context.Context, s *set, columns []string, places []int32, keys [][]*string) error {
	at, terms := make([]int, len(columns)), make([]string, len(columns))
	for i, column := range columns {
		if at[i] = s.column(column); at[i] < 0 {
			return nil // Excluded: its children cannot be found.
		}
		terms[i] = fmt.Sprintf("pg_catalog.array_agg(r.%s::pg_catalog.text ORDER BY r.ctid)", pgcatalog.Quote(column))
	}
	sql := fmt.Sprintf("SELECT %s FROM %s WHERE %s", strings.Join(terms, ", "), s.rows(at...), among)
	return e.within(ctx, s.on, func(tx pgx.Tx) error {
		found := make([][]*string, len(columns))
		targets := make([]any, len(columns))
		for i := range found {
			targets[i] = &found[i]
		}
		if err := tx.QueryRow(ctx, sql, s.args(s.mask(places))...).Scan(targets...); err != nil {
			return fmt.Errorf("read keys of %s: %w", s.Name, err)
		}
		for i := range found {
			keys[i] = append(keys[i], found[i]...)
		}
		return nil
	})
}

// referring are the places of a set's rows whose columns Via have one of the keys.
func (e *Engine) referring(ctx context.Context, u *unit, s *set, keys [][]*string) ([]int32, error) {
	if s.untold = slices.ContainsFunc(s.Via, func(c string) bool { return s.column(c) < 0 }); s.untold {
		return nil, nil
	}
	reference, parent, err := e.reference(ctx, u, s)
	if err != nil {
		return nil, err
	}
	child, err := e.shape(ctx, s)
	if err != nil {
		return nil, err
	}
	args, names, terms, given := s.args(), make([]string, len(keys)), make([]string, len(keys)), make([]string, len(keys))
	from, via := make([]string, len(keys)), make([]int, len(keys))
	for i := range keys {
		args, via[i] = append(args, keys[i]), s.column(s.Via[i])
		from[i] = fmt.Sprintf("pg_catalog.unnest($%d::pg_catalog.text[])", i+3)
		names[i] = fmt.Sprintf("k%d", i)
		given[i] = "r." + pgcatalog.Quote(s.Via[i])
		if reference != nil && child.kind(s.Via[i]) == s.Types[via[i]] {
			terms[i] = reference.Compare[i].Equal(s.value(via[i], s.Types[via[i]]), "k."+names[i]+"::"+parent.KeyTypes[i])
		} else {
			terms[i] = given[i] + "::pg_catalog.text OPERATOR(pg_catalog.=) k." + names[i]
		}
	}
	// A type that takes no NULL refuses the ones of forgotten rows.
	sql := fmt.Sprintf("SELECT r.ctid FROM %s WHERE pg_catalog.num_nulls(%s) OPERATOR(pg_catalog.=) 0 AND "+
		"EXISTS (SELECT FROM ROWS FROM (%s) AS k (%s) WHERE %s) ORDER BY 1",
		s.rows(via...), strings.Join(given, ", "), strings.Join(from, ", "), strings.Join(names, ", "), strings.Join(terms, " AND "))
	var places []int32
	err = e.within(ctx, s.on, func(tx pgx.Tx) (err error) {
		rows, _ := tx.Query(ctx, sql, args...)
		places, err = pgx.CollectRows(rows, pgx.RowTo[int32])
		return err
	})
	return places, problem.Doing(err, "find the rows of a deletion among those of %s", s.Name)
}

// parent is the tracked parent that a set's table is now, if it is one.
func (e *Engine) parent(ctx context.Context, s *set) (*loosefk.Parent, *shape, error) {
	f, err := e.shape(ctx, s)
	if err != nil || f == nil {
		return nil, nil, err
	}
	for _, parent := range e.Parents[s.on.Name] {
		if parent.OID == f.OID {
			return parent, f, nil
		}
	}
	return nil, f, nil
}

// reference is the definition by which the set was deleted, with its parent, if there still is one.
func (e *Engine) reference(ctx context.Context, u *unit, s *set) (*loosefk.Reference, *loosefk.Parent, error) {
	child, err := e.shape(ctx, s)
	if err != nil || child == nil {
		return nil, nil, err
	}
	for _, id := range s.Origins {
		for _, above := range u.by[id] {
			parent, _, err := e.parent(ctx, above)
			if err != nil {
				return nil, nil, err
			}
			if parent == nil || !slices.Equal(parent.KeyColumns, s.Keys) {
				continue
			}
			for _, reference := range parent.References {
				if reference.Usable() && reference.Database == s.on.Name && reference.Child.OID == child.OID && slices.Equal(reference.Columns, s.Via) {
					return reference, parent, nil
				}
			}
		}
	}
	return nil, nil, nil
}

// former is the place in the layout of a column that the table has now, or -1.
func (f *shape) former(l *layout, column string) int {
	for at := range l.Columns {
		if name, _ := f.present(l, at); name == column {
			return at
		}
	}
	return -1
}

// kind is the type of a column, empty where it cannot be set.
func (f *shape) kind(column string) string {
	if at := slices.Index(f.Columns, column); at >= 0 {
		return f.Types[at]
	}
	return ""
}
