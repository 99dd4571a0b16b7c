package undo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"sexton/internal/batch"
	"sexton/internal/pgcatalog"
)

const (
	// rowsAtOnce and setsAtOnce bound what one statement restores.
	rowsAtOnce = 10_000
	setsAtOnce = 500
)

const (
	keyTaken     = "its primary key is taken"
	keptOut      = "a trigger or a rule kept it out"
	changedSince = "the row has gone, or was changed since"
)

// putting restores the pending rows of a group.
type putting struct {
	*work
	*restored

	checks []check
	// parts are still to be tried, each in one statement.
	parts [][]int32
	// waiting are rows that a foreign key refused, by reason.
	waiting map[string][]int32
}

// put restores the pending rows of a group. It divides a statement that fails until the
// rows are found that are to blame, and leaves those. It returns the rows that a foreign
// key refused, whose parents may follow.
func (w *work) put(ctx context.Context, g *restored) (waiting map[string][]int32, _ error) {
	p := &putting{
		work: w, restored: g, parts: slices.Collect(slices.Chunk(g.pending, rowsAtOnce)),
		waiting: map[string][]int32{},
	}
	if g.pending = nil; g.changes() {
		p.checks = w.checks(g)
	}
	for len(p.parts) > 0 {
		if err := w.engine.renew(ctx); err != nil {
			return nil, err
		}
		rows := p.parts[0]
		p.parts = p.parts[1:]
		if err := p.part(ctx, rows); err != nil {
			return nil, fmt.Errorf("restore rows of %s: %w", g.Name, err)
		}
	}
	return p.waiting, nil
}

// again puts rows back in front, without others.
func (p *putting) again(rows, others []int32) {
	if rows = without(rows, others); len(rows) > 0 {
		p.parts = slices.Insert(p.parts, 0, rows)
	}
}

// halve tries both halves of the rows.
func (p *putting) halve(rows []int32) {
	p.parts = slices.Insert(p.parts, 0, rows[:len(rows)/2], rows[len(rows)/2:])
}

// part restores rows with one statement.
func (p *putting) part(ctx context.Context, rows []int32) error {
	// A batch prepares all of its statements first, which would fail before the
	// savepoint.
	if _, err := p.tx.Exec(ctx, "SAVEPOINT sexton"); err != nil {
		return fmt.Errorf("set savepoint: %w", err)
	}
	back, err := p.statement(ctx, rows)
	var there, orphans []int32
	missing := err == nil && !p.changes() && len(back.rows) < len(rows)
	known := false
	if missing {
		there, known, err = p.taken(ctx, p.group, p.table, rows)
	} else if err == nil && p.changes() {
		orphans, err = p.orphans(ctx, &back)
	}
	end := "RELEASE SAVEPOINT sexton"
	if err != nil || missing || len(orphans) > 0 {
		end = "ROLLBACK TO SAVEPOINT sexton; " + end
	}
	if _, failed := p.tx.Exec(ctx, end); failed != nil {
		return errors.Join(err, failed)
	}
	switch {
	case err != nil:
		return p.divide(ctx, rows, err)
	case missing && (len(rows) == 1 || len(back.rows) == 0 || known && len(there) == len(back.rows)):
		out := rows
		if len(back.rows) > 0 {
			out = without(rows, there)
		}
		p.leave(keptOut, out...)
		p.again(rows, out)
	case missing: // It cannot be told which ones came.
		p.halve(rows)
	case len(orphans) > 0:
		p.again(rows, orphans)
	default:
		p.came.add(back)
		return p.leaveChanged(ctx, without(rows, union(back.rows, nil)))
	}
	return nil
}

// statement restores rows, and returns the ones that came back.
func (p *putting) statement(ctx context.Context, rows []int32) (back came, err error) {
	sql, args := p.insert(), p.args(rows)
	if p.changes() {
		sql, args = p.update(), p.args(rows, p.Written)
		if p.Written == nil {
			args = p.args(rows)
		}
	}
	var all pgx.Batch
	batch.QueuePath(&all, p.db.Names)
	all.Queue(sql, args...).Query(func(found pgx.Rows) error {
		var row int32
		var relation uint32
		var tid string
		_, err := pgx.ForEachRow(found, []any{&row, &relation, &tid}, func() error {
			if at := len(back.rows); !p.changes() && at < len(rows) {
				row = rows[at] // Rows are inserted in order.
			}
			back.add(came{[]int32{row}, []uint32{relation}, []string{tid}})
			return nil
		})
		return err
	})
	all.Queue("SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true)")
	return back, p.tx.SendBatch(ctx, &all).Close()
}

// insert is the statement that inserts the rows of the mask.
func (p *putting) insert() string {
	var names, values []string
	var columns []int
	for column := range p.Columns {
		if name, kind := p.table.present(&p.layout, column); name != "" {
			names, values, columns = append(names, pgcatalog.Quote(name)),
				append(values, p.value(p.table, column, kind)), append(columns, column)
		}
	}
	return fmt.Sprintf("INSERT INTO %s AS child (%s) OVERRIDING SYSTEM VALUE SELECT %s FROM %s WHERE %s "+
		"RETURNING 0, child.tableoid, child.ctid::pg_catalog.text",
		p.table.Name, strings.Join(names, ", "), strings.Join(values, ", "), p.from(columns...), among)
}

// update is the statement that gives the rows of the mask their former values, if they
// still have the ones that were written.
func (p *putting) update() string {
	var set []string
	columns, terms := p.table.byKey(p.group, "child")
	for i, column := range p.Changed {
		at := p.column(column)
		name, kind := p.table.present(&p.layout, at)
		name = pgcatalog.Quote(name)
		columns, set = append(columns, at), append(set, name+" = "+p.value(p.table, at, kind))
		terms = append(terms, p.wrote(i, "child."+name, kind))
	}
	return fmt.Sprintf("UPDATE %s AS child SET %s FROM %s WHERE %s AND %s RETURNING r.ctid, child.tableoid, child.ctid::pg_catalog.text",
		p.table.Name, strings.Join(set, ", "), p.from(columns...), strings.Join(terms, " AND "), among)
}

// wrote is the condition that a value is the one that was written into the changed column
// of that index. $5 is the kept text of what was written; that of several columns is the
// text of an array.
func (p *putting) wrote(i int, value, kind string) string {
	if p.Written == nil {
		return "pg_catalog.num_nonnulls(" + value + ") OPERATOR(pg_catalog.=) 0"
	}
	written := "$5::pg_catalog.text"
	if len(p.Changed) > 1 {
		written = p.on.Names.Render(fmt.Sprintf(`("sexton".undo_value(%s, NULL::pg_catalog.text[]))[%d]`, written, i+1))
	}
	written = p.table.parse(p.on.Names, written, kind)
	// format has the empty text for NULL.
	tagged := "pg_catalog.concat(pg_catalog.num_nulls(%[1]s), '/', pg_catalog.format('%%s', %[1]s))"
	return fmt.Sprintf(tagged, value) + " OPERATOR(pg_catalog.=) " + fmt.Sprintf(tagged, written)
}

// taken returns the rows whose primary key is in the table. It reports false if the table
// has no such key.
func (w *work) taken(ctx context.Context, g *group, t *table, rows []int32) ([]int32, bool, error) {
	columns, terms := t.byKey(g, "other")
	if len(terms) == 0 {
		return nil, false, nil
	}
	sql := fmt.Sprintf("SELECT r.ctid FROM %s WHERE %s AND EXISTS (SELECT FROM %s AS other WHERE %s) ORDER BY 1",
		g.from(columns...), among, t.Name, strings.Join(terms, " AND "))
	found, _ := w.tx.Query(ctx, sql, g.args(rows)...)
	taken, err := pgx.CollectRows(found, pgx.RowTo[int32])
	if err != nil {
		return nil, false, fmt.Errorf("look for keys that are taken: %w", err)
	}
	return taken, true, nil
}

// orphans leaves changed rows whose parent does not exist, and returns them.
func (p *putting) orphans(ctx context.Context, back *came) (orphans []int32, _ error) {
	for _, c := range p.checks {
		lacking, err := p.lacking(ctx, []check{c}, back)
		if err != nil || !lacking {
			return orphans, err
		}
		var row int32
		var at spot
		links, _ := p.tx.Query(ctx, c.links(), back.args(&c)...)
		if _, err := pgx.ForEachRow(links, []any{&row, &at.relation, &at.tid}, func() error {
			if at.relation == 0 {
				orphans = append(orphans, row)
			}
			return nil
		}); err != nil {
			return nil, fmt.Errorf("look for parents: %w", err)
		}
		if orphans = union(orphans, nil); len(orphans) > 0 {
			p.leave(c.reason, orphans...)
			return orphans, nil
		}
	}
	return nil, nil
}

// divide leaves the rows of a statement that failed, or has parts of them tried.
func (p *putting) divide(ctx context.Context, rows []int32, err error) error {
	var pgErr *pgconn.PgError
	switch {
	case !errors.As(err, &pgErr), p.tx.Conn().IsClosed(), batch.Judge(err).Lock():
		return err
	case pgErr.Code == "57014" && len(rows) > 1 && ctx.Err() == nil: // Fewer rows may take less than the timeout.
	case slices.Contains([]string{"SX", "57", "53"}, pgErr.Code[:2]):
		return err
	}
	if unique := pgErr.Code == "23505" || pgErr.Code == "23P01"; unique && !p.changes() {
		taken, _, err := p.taken(ctx, p.group, p.table, rows)
		if err != nil {
			return err
		}
		p.leave(keyTaken, taken...)
		if len(taken) > 0 {
			p.again(rows, taken)
			return nil
		}
	}
	if pgErr.Code == "0A000" { // A rule would hide which rows came.
		p.leave(keptOut, rows...)
		return nil
	}
	// What is wrong with the table, its privileges or its columns concerns all of its
	// rows. A policy looks at each.
	all := strings.HasPrefix(pgErr.Code, "42") && pgErr.Routine != "ExecWithCheckOptions" ||
		pgErr.Code == "23502" && slices.Contains(p.table.Columns, pgErr.ColumnName) &&
			p.table.former(&p.layout, pgErr.ColumnName) < 0
	switch reason := p.reason(pgErr); {
	case len(rows) > 1 && !all:
		p.halve(rows)
	case pgErr.Code == "23503" && !p.changes():
		p.waiting[reason] = append(p.waiting[reason], rows...)
	default:
		p.leave(reason, rows...)
	}
	return nil
}

// reason returns why the database refuses rows, without what is in them: all readers of
// the page see it. Details show rows, messages on data their values.
func (p *putting) reason(err *pgconn.PgError) string {
	reason := err.Message
	switch {
	case strings.HasPrefix(err.Code, "22"):
		reason = "the database refuses a value of it (SQLSTATE " + err.Code + ")"
	case err.Code == "42501":
		reason += "; the worker's role needs GRANT SELECT, INSERT, UPDATE ON TABLE " + p.table.Name +
			", and GRANT SELECT on the tables that it refers to"
	}
	return reason
}
