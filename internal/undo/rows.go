package undo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"sexton/internal/database"
	"sexton/internal/dbsqlc"
	"sexton/internal/drain"
	"sexton/internal/loosefk"
	"sexton/internal/pgcatalog"
)

// shape is a table as it is now, for the sets of one layout.
type shape struct {
	OID     uint32
	Same    bool
	Name    string
	Numbers []int16
	Columns []string
	Types   []string

	keys []foreignKey
	// own compares the columns of the primary key.
	own map[string]pgcatalog.Comparison
}

type shapeKey struct {
	database string
	layout   int64
}

type foreignKey struct {
	Name, Target               string
	Columns, Others, Operators []string
	Lockable                   bool
}

// shape reads the table of a set; nil where it is gone.
func (e *Engine) shape(ctx context.Context, s *set) (*shape, error) {
	at := shapeKey{s.on.Name, s.layout.ID}
	if known, found := e.shapes[at]; found {
		return known, nil
	}
	found := &shape{own: map[string]pgcatalog.Comparison{}}
	err := pgcatalog.Settled(ctx, s.on.Pool, func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx, text("table"), s.Relation, s.Name).
			Scan(&found.OID, &found.Same, &found.Name, &found.Numbers, &found.Columns, &found.Types)
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
		return found.compare(ctx, tx)
	})
	if err != nil {
		return nil, fmt.Errorf("read table %s: %w", s.Name, err)
	}
	e.shapes[at] = found
	return found, nil
}

func (f *shape) compare(ctx context.Context, db dbsqlc.DBTX) error {
	operators, err := pgcatalog.ReadOperators(ctx, db)
	if err != nil {
		return fmt.Errorf("read operators: %w", err)
	}
	relations, err := pgcatalog.Read(ctx, db, []uint32{f.OID})
	if err != nil || relations[f.OID] == nil {
		return err
	}
	for _, column := range relations[f.OID].PrimaryKey() {
		if own, err := operators.Own(relations[f.OID].Columns[column]); err == nil {
			f.own[column] = own
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

// rows are those of the set $1, $2, as an item of a FROM clause called r. Their places are in sexton_n. SELECT lists take values of composite types apart
// from one another, and not into columns.
func (s *set) rows() string {
	terms := []string{"pg_catalog.generate_series(1, u.rows) AS sexton_n"}
	for i, at := range s.kept() {
		terms = append(terms, fmt.Sprintf("pg_catalog.unnest(u.c[%d]::%s) AS %s", i+1, s.Arrays[at], pgcatalog.Quote(s.Columns[at])))
	}
	return fmt.Sprintf(`(
	SELECT %s FROM %s AS u WHERE u.id OPERATOR(pg_catalog.=) $1::pg_catalog.int8 AND u.number OPERATOR(pg_catalog.=) $2::pg_catalog.int8
) AS r`,
		strings.Join(terms, ", "), s.on.Names.Render(`"sexton".undo`))
}

// mask has true at the places of rows. A statement looks each of its rows up in it at once, where it would go through a list of places.
func (s *set) mask(places []int32) []bool {
	mask := make([]bool, s.Rows)
	for _, place := range places {
		mask[place-1] = true
	}
	return mask
}

// texts is the type of what is kept of a column whose values are kept as texts.
const texts = "pg_catalog.text[]"

// value is a column of r in its type.
func (s *set) value(at int, kind string) string {
	value := "r." + pgcatalog.Quote(s.Columns[at])
	if kind != s.Types[at] && s.Arrays[at] != texts {
		return value + "::pg_catalog.text::" + kind
	}
	if s.Arrays[at] == texts && kind != "pg_catalog.text" {
		return value + "::" + kind
	}
	return value
}

// within runs do in a transaction that reads values as they were written.
func within(ctx context.Context, db database.Database, do func(tx pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, db.Pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, text("settings"), false); err != nil {
			return fmt.Errorf("settle transaction: %w", err)
		}
		return do(tx)
	})
}

// keysOf adds the text forms of columns of a set's rows.
func (e *Engine) keysOf(ctx context.Context, s *set, columns []string, places []int32, keys [][]*string) error {
	terms := make([]string, len(columns))
	for i, column := range columns {
		at := s.column(column)
		if at < 0 {
			return nil // Excluded: its children cannot be found.
		}
		terms[i] = fmt.Sprintf("pg_catalog.array_agg(r.%s::pg_catalog.text ORDER BY r.sexton_n)", pgcatalog.Quote(column))
	}
	sql := fmt.Sprintf("SELECT %s FROM %s WHERE ($3::pg_catalog.bool[])[r.sexton_n]", strings.Join(terms, ", "), s.rows())
	return within(ctx, s.on, func(tx pgx.Tx) error {
		found := make([][]*string, len(columns))
		targets := make([]any, len(columns))
		for i := range found {
			targets[i] = &found[i]
		}
		if err := tx.QueryRow(ctx, sql, s.ID, s.Number, s.mask(places)).Scan(targets...); err != nil {
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
	args, names, terms := []any{s.ID, s.Number}, make([]string, len(keys)), make([]string, len(keys))
	from := make([]string, len(keys))
	reference, parent := e.reference(u, s)
	for i := range keys {
		args = append(args, keys[i])
		from[i] = fmt.Sprintf("pg_catalog.unnest($%d::pg_catalog.text[])", i+3)
		names[i] = fmt.Sprintf("k%d", i)
		value := "r." + pgcatalog.Quote(s.Via[i])
		if reference != nil {
			terms[i] = reference.Compare[i].Equal(value, "k."+names[i]+"::"+parent.KeyTypes[i])
		} else {
			terms[i] = value + "::pg_catalog.text OPERATOR(pg_catalog.=) k." + names[i]
		}
	}
	sql := fmt.Sprintf("SELECT r.sexton_n FROM %s WHERE EXISTS (SELECT FROM ROWS FROM (%s) AS k (%s) WHERE %s) ORDER BY 1",
		s.rows(), strings.Join(from, ", "), strings.Join(names, ", "), strings.Join(terms, " AND "))
	var places []int32
	err := within(ctx, s.on, func(tx pgx.Tx) error {
		rows, _ := tx.Query(ctx, sql, args...)
		var err error
		places, err = pgx.CollectRows(rows, pgx.RowTo[int32])
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("find the rows of a deletion among those of %s: %w", s.Name, err)
	}
	return places, nil
}

// reference is the definition by which the set was deleted, with its parent, if there still is one.
func (e *Engine) reference(u *unit, s *set) (*loosefk.Reference, *loosefk.Parent) {
	for _, id := range s.Origins {
		for _, above := range u.by[id] {
			for _, parent := range e.Parents[above.on.Name] {
				if parent.OID != above.Relation || !slices.Equal(parent.KeyColumns, s.Keys) {
					continue
				}
				for _, reference := range parent.References {
					if reference.Usable() && reference.Database == s.on.Name && reference.Child.OID == s.Relation && slices.Equal(reference.Columns, s.Via) {
						return reference, parent
					}
				}
			}
		}
	}
	return nil, nil
}

// missing makes, for each parent that rows of the table refer to, the statement that finds rows at the places $3 without it. In silence foreign keys are
// not checked, so they are looked up here; definitions of loose foreign keys are always. Of changed rows only the definition counts that changed them: its
// conditions held then.
func (e *Engine) missing(u *unit, s *set, f *shape) (checks []check) {
	by, _ := e.reference(u, s)
	look := func(what, target, on string, given []string, lock bool, more string, args *drain.Args) {
		if lock {
			on += " FOR KEY SHARE OF other"
		}
		checks = append(checks, check{what, fmt.Sprintf(
			"SELECT r.sexton_n FROM %s WHERE ($3::pg_catalog.bool[])[r.sexton_n] AND pg_catalog.num_nulls(%s) OPERATOR(pg_catalog.=) 0%s "+
				"AND NOT EXISTS (SELECT FROM %s AS other WHERE %s)",
			s.rows(), strings.Join(given, ", "), more, target, on), args.Values[3:]})
	}
	args := func() *drain.Args { return &drain.Args{Values: []any{nil, nil, nil}} }
	for _, key := range f.keys {
		given, terms := make([]string, len(key.Columns)), make([]string, len(key.Columns))
		for i, column := range key.Columns {
			at := f.former(&s.layout, column)
			if at < 0 || len(s.Changed) > 0 && !slices.Contains(s.Fields, s.Columns[at]) {
				given = nil
				break
			}
			given[i] = s.value(at, f.kind(column))
			terms[i] = fmt.Sprintf("other.%s %s %s", pgcatalog.Quote(key.Others[i]), key.Operators[i], given[i])
		}
		if e.silent[s.on.Name] && given != nil {
			look("foreign key "+key.Name+" finds no row of "+key.Target, key.Target, strings.Join(terms, " AND "), given, key.Lockable, "", args())
		}
	}
	for _, parent := range e.Parents[s.on.Name] {
		for _, r := range parent.References {
			if !r.Usable() || r.Remote || r.Child.OID != f.OID || len(s.Changed) > 0 && r != by {
				continue
			}
			given, terms := make([]string, len(r.Columns)), make([]string, len(r.Columns))
			whole := true
			for i, column := range r.Columns {
				at := s.column(column)
				if whole = whole && at >= 0; whole {
					given[i] = s.value(at, s.Types[at])
					terms[i] = r.Compare[i].Equal(given[i], "other."+pgcatalog.Quote(parent.KeyColumns[i]))
				}
			}
			for _, asked := range slices.Concat(r.Conditions, r.Except) {
				whole = whole && (len(s.Changed) > 0 || s.column(asked.Column) >= 0)
			}
			whole = whole && (len(s.Changed) > 0 || r.Action != drain.Assign || s.column(r.Target.Column) >= 0)
			if whole {
				a, more := args(), ""
				if len(s.Changed) == 0 {
					more = r.Restrictions("r", a)
				}
				look("the row of "+parent.Recorded+" that it refers to has gone", parent.SQL(), strings.Join(terms, " AND "), given, false, more, a)
			}
		}
	}
	return checks
}

// check is a statement that finds rows whose parent is missing, what that means, and its arguments from $4 on.
type check struct {
	what, sql string
	args      []any
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

// kind is the type of a column.
func (f *shape) kind(column string) string { return f.Types[slices.Index(f.Columns, column)] }
