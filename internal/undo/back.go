package undo

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"sexton/internal/batch"
	"sexton/internal/pgcatalog"
)

// A statement puts back rowsAtOnce rows, and those of setsAtOnce sets, at most; a transaction begins none after timeAtOnce.
const (
	rowsAtOnce = 10_000
	setsAtOnce = 500
	timeAtOnce = 5 * time.Second
)

// without returns the sorted places that are not among others, which are sorted, too.
func without(places, others []int32) []int32 {
	var left []int32
	for _, place := range places {
		if _, found := slices.BinarySearch(others, place); !found {
			left = append(left, place)
		}
	}
	return left
}

// both returns the sorted places of two lists that have none in common.
func both(places, others []int32) []int32 {
	return slices.Sorted(slices.Values(slices.Concat(places, others)))
}

// back is the restoring of one set.
type back struct {
	*set

	shape *shape
	// checks follow each statement, final ones the last.
	checks, final []check
	// parts are the places that are still to be tried, each part in one statement; done are those of the transaction that are back.
	parts [][]int32
	done  came
	// handed are rows whose values go to later sets, reminders what the others may bring about.
	handed    map[*set]*handed
	reminders []reminder
	// skipping has statements pass over rows in whose way another one is; unskippable says that the table does not allow that.
	skipping, unskippable bool
}

// came are rows that are back: their places, and where they stand.
type came struct {
	places    []int32
	relations []uint32
	tids      []string
}

func (c *came) add(more came) {
	c.places, c.relations, c.tids = append(c.places, more.places...), append(c.relations, more.relations...), append(c.tids, more.tids...)
}

// args are the arguments of a check.
func (c *came) args(of *check) []any {
	return append([]any{c.relations, c.tids, c.places}, of.args.Values[3:]...)
}

// changedSince is why a value is not given back.
const changedSince = "the row has gone, or was changed since"

// mostReasons bounds the reasons of a set: those of the application's own triggers may differ from row to row.
const mostReasons = 100

// restore tries the first of the parts. What of it cannot come back it names, or divides to find it.
func (b *back) restore(ctx context.Context, tx pgx.Tx) error {
	places := b.parts[0]
	b.parts = b.parts[1:]
	came, suspect, err := b.try(ctx, tx, places)
	var lacking, out []int32
	if errors.Is(err, errKeptOut) {
		if out, err = b.keptOut(ctx, tx, places, len(came.places)); err == nil && len(out) == 0 {
			err = errKeptOut
		}
	}
	if err == nil && suspect != nil {
		if lacking, err = b.lacking(ctx, tx, *suspect, came); err != nil {
			return err
		}
	}
	end := "RELEASE SAVEPOINT sexton"
	if err != nil || len(lacking)+len(out) > 0 {
		end = "ROLLBACK TO SAVEPOINT sexton; " + end
	}
	if _, failed := tx.Exec(ctx, end); failed != nil {
		return errors.Join(err, failed)
	}
	switch {
	case err != nil:
		return b.divide(ctx, tx, places, err)
	case len(lacking) > 0:
		b.left[suspect.what] = append(b.left[suspect.what], lacking...)
		b.again(places, lacking)
	case len(out) > 0:
		reason := "a trigger or a rule kept it out"
		if b.skipping {
			reason = "a value that must be unique is taken, or a trigger kept it out"
		}
		b.refuse(reason, out)
		b.again(places, out)
	default:
		b.done.add(came)
		b.refuse(changedSince, without(places, slices.Sorted(slices.Values(came.places))))
	}
	return nil
}

// errKeptOut says that a statement put fewer rows back than it was given.
var errKeptOut = errors.New("a trigger or a rule keeps rows out")

// keptOut are the places of rows that a statement without an error has not put back; none where that cannot be told. An error says that the set has gone.
func (b *back) keptOut(ctx context.Context, tx pgx.Tx, places []int32, came int) ([]int32, error) {
	var kept int64
	if err := tx.QueryRow(ctx, "SELECT pg_catalog.count(*) FROM "+b.rows(-1), b.args()...).Scan(&kept); err != nil { // Of no column.
		return nil, fmt.Errorf("look whether the rows are still kept: %w", err)
	}
	if kept == 0 {
		return nil, fmt.Errorf("what was kept of %s has gone meanwhile: its day has passed, or the deletion was forgotten", b.Name)
	}
	if came == 0 {
		return places, nil
	}
	there, err := b.taken(ctx, tx, b.shape, places)
	if err != nil || len(there) != came {
		return nil, err // Without a primary key, or with one that a trigger has changed.
	}
	return without(places, there), nil
}

// again has the places tried once more that are not among others.
func (b *back) again(places, others []int32) {
	if places = without(places, others); len(places) > 0 {
		b.parts = slices.Insert(b.parts, 0, places)
	}
}

// refuse names rows that no later pass tries again.
func (s *set) refuse(reason string, places []int32) {
	if len(places) > 0 {
		if s.refused == nil {
			s.refused = map[string][]int32{}
		}
		s.refused[reason] = append(s.refused[reason], places...)
	}
}

// try puts rows back behind a savepoint, and returns the ones that came back, with the first check that finds a parent missing.
func (b *back) try(ctx context.Context, tx pgx.Tx, places []int32) (back came, suspect *check, err error) {
	// A batch prepares all of its statements before it sends the first: one that names what has gone would fail before the savepoint.
	if _, err := tx.Exec(ctx, "SAVEPOINT sexton"); err != nil {
		return back, nil, fmt.Errorf("set savepoint: %w", err)
	}
	var all pgx.Batch
	batch.QueuePath(&all, b.on.Names)
	mask := b.mask(places)
	whole, args := mask == nil && len(b.Changed) == 0, b.args()
	if !whole {
		args = b.args(mask)
	}
	restores := all.Queue(b.statement(whole), args...)
	restores.Exec(func(tag pgconn.CommandTag) error {
		back.places = places[:min(int(tag.RowsAffected()), len(places))]
		return nil
	})
	if b.looks() {
		restores.Query(func(rows pgx.Rows) error {
			var place int32
			var relation uint32
			var tid string
			_, err := pgx.ForEachRow(rows, []any{&place, &relation, &tid}, func() error {
				if at := len(back.places); len(b.Changed) == 0 && at < len(places) {
					place = places[at] // They are inserted in order.
				}
				back.add(came{[]int32{place}, []uint32{relation}, []string{tid}})
				return nil
			})
			return err
		})
	}
	all.Queue(ownPath)
	b.shape.same(&all, b.set)
	if err := tx.SendBatch(ctx, &all).Close(); err != nil {
		return back, nil, err
	}
	if len(back.places) < len(places) && len(b.Changed) == 0 {
		return back, nil, errKeptOut
	}
	var checks pgx.Batch
	for i := range b.checks {
		checks.Queue(b.checks[i].any(), back.args(&b.checks[i])...).QueryRow(func(row pgx.Row) error {
			var missing bool
			if err := row.Scan(&missing); err != nil || !missing || suspect != nil {
				return err
			}
			suspect = &b.checks[i]
			return nil
		})
	}
	return back, suspect, tx.SendBatch(ctx, &checks).Close()
}

// looks reports whether it matters where the rows stand that are back.
func (b *back) looks() bool { return b.shape.Rules || len(b.Changed)+len(b.checks)+len(b.final) > 0 }

// ownPath is the search_path of all statements that fire no trigger.
const ownPath = "SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true)"

// lacking are the places whose parent is missing, and of a table that refers to itself all below them: one by one they would take a statement each.
func (b *back) lacking(ctx context.Context, tx pgx.Tx, c check, back came) ([]int32, error) {
	rows, _ := tx.Query(ctx, c.all(), back.args(&c)...)
	lacking, err := pgx.CollectRows(rows, pgx.RowTo[int32])
	if err != nil {
		return nil, fmt.Errorf("look for the other parents: %w", err)
	}
	if c.other != b.shape.OID || len(lacking) == 0 {
		slices.Sort(lacking)
		return slices.Compact(lacking), nil
	}
	above, keys := map[string][]int32{}, map[int32]string{}
	var place int32
	var key, parent *string
	rows, _ = tx.Query(ctx, c.links(), back.args(&c)...)
	if _, err := pgx.ForEachRow(rows, []any{&place, &key, &parent}, func() error {
		if key != nil {
			keys[place] = *key
		}
		if parent != nil {
			above[*parent] = append(above[*parent], place)
		}
		return nil
	}); err != nil {
		return nil, fmt.Errorf("look for the rows below: %w", err)
	}
	found := map[int32]bool{}
	for len(lacking) > 0 {
		place, lacking = lacking[len(lacking)-1], lacking[:len(lacking)-1]
		if key, known := keys[place]; !found[place] && known {
			lacking = append(lacking, above[key]...)
		}
		found[place] = true
	}
	return slices.Sorted(maps.Keys(found)), nil
}

// divide leaves the rows of a statement that failed, or has parts of them tried.
func (b *back) divide(ctx context.Context, tx pgx.Tx, places []int32, err error) error {
	var pgErr *pgconn.PgError
	switch {
	case errors.Is(err, errKeptOut): // More than one: of a single one it can be told.
		b.parts = slices.Insert(b.parts, 0, places[:len(places)/2], places[len(places)/2:])
		return nil
	case !errors.As(err, &pgErr), batch.Judge(err).Lock():
		return err
	case pgErr.Code == "57014" && len(places) > 1 && ctx.Err() == nil: // Fewer rows may take less than the timeout.
	case slices.Contains([]string{"SX", "57", "53"}, pgErr.Code[:2]):
		return err
	}
	if unique := pgErr.Code == "23505" || pgErr.Code == "23P01"; unique && len(b.Changed) == 0 {
		taken, err := b.taken(ctx, tx, b.shape, places)
		if err != nil {
			return err
		}
		b.refuse(keyTaken, taken)
		if len(taken) > 0 || !b.skipping && !b.unskippable && len(places) > 1 {
			b.skipping = b.skipping || len(taken) == 0
			b.again(places, taken)
			return nil
		}
	}
	if b.skipping && (pgErr.Code == "0A000" || pgErr.Code == "55000") { // Rules and deferrable constraints do not allow it.
		b.skipping, b.unskippable = false, true
		b.again(places, nil)
		return nil
	}
	if pgErr.Code == "0A000" { // Rules leave unknown what has come.
		b.refuse("a trigger or a rule kept it out", places)
		return nil
	}
	reason := b.reason(pgErr)
	// What is wrong with the table, its rights or its columns, is wrong with all of its rows; a policy looks at each.
	all := strings.HasPrefix(pgErr.Code, "42") && pgErr.Routine != "ExecWithCheckOptions" ||
		pgErr.Code == "23502" && slices.Contains(b.shape.Columns, pgErr.ColumnName) && b.shape.former(&b.layout, pgErr.ColumnName) < 0
	switch {
	case len(places) > 1 && !all:
		b.parts = slices.Insert(b.parts, 0, places[:len(places)/2], places[len(places)/2:])
	case pgErr.Code == "23503": // A later pass may have the parent.
		b.left[reason] = append(b.left[reason], places...)
	default:
		b.refuse(reason, places)
	}
	return nil
}

// reason says why the database refuses rows, without what is in them: all readers of the page see it. Details show rows, messages on data their values.
func (b *back) reason(err *pgconn.PgError) string {
	reason := err.Message
	switch {
	case strings.HasPrefix(err.Code, "22"):
		reason = "the database refuses a value of it (SQLSTATE " + err.Code + ")"
	case err.Code == "42501":
		reason += "; the worker's role needs GRANT SELECT, INSERT, UPDATE ON TABLE " + b.shape.Name + ", and GRANT SELECT on the tables that it refers to"
	}
	if b.refused[reason] == nil && len(b.refused) >= mostReasons {
		reason = "the database refuses it (SQLSTATE " + err.Code + ")"
	}
	return reason
}

// statement puts the rows at the places $3 back or, of whole sets, all of them, whose places are not asked for.
func (b *back) statement(whole bool) string {
	var names, values []string
	var columns []int
	if len(b.Changed) > 0 {
		return b.giveBack()
	}
	for column := range b.Columns {
		if name, kind := b.shape.present(&b.layout, column); name != "" {
			names, values, columns = append(names, pgcatalog.Quote(name)), append(values, b.value(column, kind)), append(columns, column)
		}
	}
	skip := ""
	if b.skipping {
		skip = " ON CONFLICT DO NOTHING"
	}
	returning := ""
	if b.looks() {
		returning = " RETURNING 0, child.tableoid, child.ctid::pg_catalog.text"
	}
	from := b.of(nil, columns)
	if !whole {
		from = b.rows(columns...) + " WHERE " + among
	}
	return fmt.Sprintf("INSERT INTO %s AS child (%s) OVERRIDING SYSTEM VALUE SELECT %s FROM %s%s%s",
		b.shape.Name, strings.Join(names, ", "), strings.Join(values, ", "), from, skip, returning)
}

// unable says why the table takes none of a set's values back, if it does not.
func (s *set) unable(f *shape, silent bool) string {
	if silent && f.Deferrable != "" {
		return "its unique key " + f.Deferrable + " is deferrable, and checked by triggers alone: set loose_foreign_keys.undo.fire_triggers to true"
	}
	if _, key := s.byKey(f, "child"); len(s.Changed) > 0 && len(key) == 0 {
		return "its table has another primary key by now"
	}
	for _, column := range s.Changed {
		if name, _ := f.present(&s.layout, s.column(column)); name == "" {
			return "column " + column + " does not exist any more"
		}
	}
	return ""
}

// giveBack gives rows their former values where nothing else has been written since.
func (b *back) giveBack() string {
	var set []string
	columns, terms := b.byKey(b.shape, "child")
	for i, column := range b.Changed {
		at := b.column(column)
		name, kind := b.shape.present(&b.layout, at)
		name = pgcatalog.Quote(name)
		columns, set = append(columns, at), append(set, name+" = "+b.value(at, kind))
		terms = append(terms, b.wrote(i, "child."+name, kind))
	}
	return fmt.Sprintf("UPDATE %s AS child SET %s FROM %s WHERE %s AND %s RETURNING r.ctid, child.tableoid, child.ctid::pg_catalog.text",
		b.shape.Name, strings.Join(set, ", "), b.rows(columns...), strings.Join(terms, " AND "), among)
}

// wrote is the condition that a value of a type is the one that was written into the changed column at that place. Sets of earlier releases have it in the
// form that a definition has it in: true is kept as t in an array, and padding as none.
func (s *set) wrote(i int, value, kind string) string {
	at := s.column(s.Changed[i])
	switch {
	case s.Written == nil:
		return "pg_catalog.num_nonnulls(" + value + ") OPERATOR(pg_catalog.=) 0"
	case len(s.Changed) == 1:
		written := pgcatalog.Literal(*s.Written)
		same := "pg_catalog.format('%s', " + value + ") OPERATOR(pg_catalog.=) " + written
		if len(s.Via) > 0 && kind == s.Types[at] {
			same = fmt.Sprintf("(%s OR %s::pg_catalog.text OPERATOR(pg_catalog.=) %s::%s::pg_catalog.text)", same, value, written, kind)
		}
		return "pg_catalog.num_nulls(" + value + ") OPERATOR(pg_catalog.=) 0 AND " + same // format has the empty text for NULL.
	}
	tagged := "pg_catalog.concat(pg_catalog.num_nulls(%[1]s), '/', pg_catalog.format('%%s', %[1]s))" // NULL is not the empty text.
	was := fmt.Sprintf("(%s::pg_catalog.text[])[%d]", pgcatalog.Literal(*s.Written), i+1)
	return fmt.Sprintf(tagged, value) + " OPERATOR(pg_catalog.=) " + fmt.Sprintf(tagged, was)
}
