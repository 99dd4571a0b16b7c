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
	// mostRows and mostSets limit the rows and sets of one statement.
	mostRows = 10_000
	mostSets = 500
)

const (
	keyTaken     = "its primary key is taken"
	keptOut      = "a trigger or rule prevented it"
	changedSince = "the row was deleted or changed since"
)

// groupRestore restores the pending rows of a group.
type groupRestore struct {
	*work
	*restored

	checks []check
	// parts holds the rows of each statement that is still to be run.
	parts [][]int32
	// waiting holds the rows that a foreign key refused, by the reason.
	waiting map[string][]int32
}

// restoreGroup restores the pending rows of a group. If a statement fails, restoreGroup
// bisects it until it finds the failing rows, and marks those as not restored. It returns
// the rows that a foreign key refused, because their parents may be restored later.
func (w *work) restoreGroup(ctx context.Context, g *restored) (waiting map[string][]int32, _ error) {
	p := &groupRestore{
		work: w, restored: g, parts: slices.Collect(slices.Chunk(g.pending, mostRows)),
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
		if err := p.restorePart(ctx, rows); err != nil {
			return nil, fmt.Errorf("restore rows of %s: %w", g.Name, err)
		}
	}
	return p.waiting, nil
}

// retry makes rows, without the excluded ones, the next part to restore.
func (p *groupRestore) retry(rows, excluded []int32) {
	if rows = without(rows, excluded); len(rows) > 0 {
		p.parts = slices.Insert(p.parts, 0, rows)
	}
}

// halve makes the two halves of rows the next two parts to restore.
func (p *groupRestore) halve(rows []int32) {
	p.parts = slices.Insert(p.parts, 0, rows[:len(rows)/2], rows[len(rows)/2:])
}

// restorePart restores rows with one statement. If that fails for some rows, restorePart
// marks them as not restored, or adds smaller parts for a retry.
func (p *groupRestore) restorePart(ctx context.Context, rows []int32) error {
	// The savepoint is not in the batch, because SendBatch prepares all statements first.
	// A statement that cannot be prepared would fail before the savepoint is set.
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
		p.retry(rows, out)
	case missing: // The statement does not show which of the rows were inserted.
		p.halve(rows)
	case len(orphans) > 0:
		p.retry(rows, orphans)
	default:
		p.restored.back.add(back)
		return p.leaveChanged(ctx, without(rows, union(back.rows, nil)))
	}
	return nil
}

// statement restores rows with one statement. It returns the rows that were restored.
func (p *groupRestore) statement(ctx context.Context, rows []int32) (back restoredRows, err error) {
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
				row = rows[at] // INSERT returns the rows in the order of its SELECT.
			}
			back.add(restoredRows{[]int32{row}, []uint32{relation}, []string{tid}})
			return nil
		})
		return err
	})
	all.Queue("SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true)")
	return back, p.tx.SendBatch(ctx, &all).Close()
}

// insert returns the statement that inserts the rows for which the mask $4 is true.
func (p *groupRestore) insert() string {
	var names, values []string
	var columns []int
	for column := range p.Columns {
		if name, kind := p.table.currentColumn(&p.layout, column); name != "" {
			names, values, columns = append(names, pgcatalog.Quote(name)),
				append(values, p.value(p.table, column, kind)), append(columns, column)
		}
	}
	return fmt.Sprintf("INSERT INTO %s AS child (%s) OVERRIDING SYSTEM VALUE SELECT %s FROM %s WHERE %s "+
		"RETURNING 0, child.tableoid, child.ctid::pg_catalog.text",
		p.table.Name, strings.Join(names, ", "), strings.Join(values, ", "), p.from(columns...), inMask)
}

// update returns the statement that sets rows to their former values if the mask $4 is
// true for them. It skips rows that no longer have the values that the deletion wrote.
func (p *groupRestore) update() string {
	var set []string
	columns, terms := p.table.byKey(p.group, "child")
	for i, column := range p.Changed {
		at := p.column(column)
		name, kind := p.table.currentColumn(&p.layout, at)
		name = pgcatalog.Quote(name)
		columns, set = append(columns, at), append(set, name+" = "+p.value(p.table, at, kind))
		terms = append(terms, p.wrote(i, "child."+name, kind))
	}
	return fmt.Sprintf("UPDATE %s AS child SET %s FROM %s WHERE %s AND %s RETURNING r.ctid, child.tableoid, child.ctid::pg_catalog.text",
		p.table.Name, strings.Join(set, ", "), p.from(columns...), strings.Join(terms, " AND "), inMask)
}

// wrote returns the condition that a value is equal to the value that the deletion wrote
// into the i-th changed column. $5 is the saved text of the written value. For several
// columns it is the text of an array.
func (p *groupRestore) wrote(i int, value, kind string) string {
	if p.Written == nil {
		return "pg_catalog.num_nonnulls(" + value + ") OPERATOR(pg_catalog.=) 0"
	}
	written := "$5::pg_catalog.text"
	if len(p.Changed) > 1 {
		written = p.on.Names.Render(fmt.Sprintf(`("sexton".undo_value(%s, NULL::pg_catalog.text[]))[%d]`, written, i+1))
	}
	written = p.table.parse(p.on.Names, written, kind)
	// format returns an empty text for NULL, so the comparison includes num_nulls.
	tagged := "pg_catalog.concat(pg_catalog.num_nulls(%[1]s), '/', pg_catalog.format('%%s', %[1]s))"
	return fmt.Sprintf(tagged, value) + " OPERATOR(pg_catalog.=) " + fmt.Sprintf(tagged, written)
}

// taken returns the rows whose primary key exists in the table. The second result is
// false if the keys cannot be compared, because the table now has a different primary
// key.
func (w *work) taken(ctx context.Context, g *group, t *table, rows []int32) ([]int32, bool, error) {
	columns, terms := t.byKey(g, "other")
	if len(terms) == 0 {
		return nil, false, nil
	}
	sql := fmt.Sprintf("SELECT r.ctid FROM %s WHERE %s AND EXISTS (SELECT FROM %s AS other WHERE %s) ORDER BY 1",
		g.from(columns...), inMask, t.Name, strings.Join(terms, " AND "))
	found, _ := w.tx.Query(ctx, sql, g.args(rows)...)
	taken, err := pgx.CollectRows(found, pgx.RowTo[int32])
	if err != nil {
		return nil, false, fmt.Errorf("find taken keys: %w", err)
	}
	return taken, true, nil
}

// orphans marks changed rows whose parent does not exist as not restored, and returns
// them.
func (p *groupRestore) orphans(ctx context.Context, back *restoredRows) (orphans []int32, _ error) {
	for _, c := range p.checks {
		lacking, err := p.lacksParents(ctx, []check{c}, back)
		if err != nil || !lacking {
			return orphans, err
		}
		var row int32
		var at position
		links, _ := p.tx.Query(ctx, c.parentLinks(), back.args(&c)...)
		if _, err := pgx.ForEachRow(links, []any{&row, &at.relation, &at.tid}, func() error {
			if at.relation == 0 {
				orphans = append(orphans, row)
			}
			return nil
		}); err != nil {
			return nil, fmt.Errorf("find parents: %w", err)
		}
		if orphans = union(orphans, nil); len(orphans) > 0 {
			p.leave(c.reason, orphans...)
			return orphans, nil
		}
	}
	return nil, nil
}

// divide marks the rows of a failed statement as not restored, or adds smaller parts for
// a retry. It returns errors that do not depend on the rows, such as a lost connection.
func (p *groupRestore) divide(ctx context.Context, rows []int32, err error) error {
	var pgErr *pgconn.PgError
	switch {
	case !errors.As(err, &pgErr), p.tx.Conn().IsClosed(), batch.Judge(err).Lock():
		return err
	case pgErr.Code == "57014" && len(rows) > 1 && ctx.Err() == nil:
		// The statement timed out. Fewer rows may take less time.
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
			p.retry(rows, taken)
			return nil
		}
	}
	if pgErr.Code == "0A000" { // A rule on the table does not allow RETURNING.
		p.leave(keptOut, rows...)
		return nil
	}
	// An error of the table, its privileges or its columns applies to all rows, so the
	// statement is not bisected. An error of a row security policy may apply to a single
	// row.
	all := strings.HasPrefix(pgErr.Code, "42") && pgErr.Routine != "ExecWithCheckOptions" ||
		pgErr.Code == "23502" && slices.Contains(p.table.Columns, pgErr.ColumnName) &&
			p.table.layoutColumn(&p.layout, pgErr.ColumnName) < 0
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

// reason returns the reason for which the database refuses rows. It contains no values,
// because every reader of the status page sees it. The detail of an error contains rows,
// so it is left out. The message of a data error contains values, so it is replaced.
func (p *groupRestore) reason(err *pgconn.PgError) string {
	reason := err.Message
	switch {
	case strings.HasPrefix(err.Code, "22"):
		reason = "the database refuses one of its values (SQLSTATE " + err.Code + ")"
	case err.Code == "42501":
		reason += "; the worker's role needs GRANT SELECT, INSERT, UPDATE ON TABLE " + p.table.Name +
			", and GRANT SELECT on the tables that it refers to"
	}
	return reason
}
