package loosefk

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"sexton/internal/batch"
	"sexton/internal/pgschema"
)

// A child in another database is never seen in one snapshot with its parent. So a step there looks first at children, then
// at the parents' database, and then changes exactly those versions of rows that it has seen, and only those whose key had no
// parent in between. A parent that was there before its child is seen by the second look; a session that inserts the parent after
// that and gives it an old child makes a new version of that row, which the third statement leaves alone.

// exactly is true for references whose children are changed by versions.
func (r *Reference) exactly() bool { return r.Remote && r.keeps() }

// version is one version of a row: its place, and the transaction that made it, as places are used again.
type version struct {
	place pgtype.TID
	maker uint32
}

// versionsStatement reads at most limit versions of children of keys.
func (p *Parent) versionsStatement(r *Reference, leaf Table, keys any, limit int) (string, []any) {
	args := &arguments{}
	keysAt, limitAt := args.add(keys), args.add(limit)
	return p.pick(r, leaf, "picked.ctid, picked.xmin", "", p.keysParameter(keysAt), limitAt, args), args.values
}

// goneStatement returns those of keys that have no parent, as they came: the text of a value depends on the session.
func (p *Parent) goneStatement(keys any) (string, []any) {
	args := &arguments{}
	if !p.Integer && !p.composite() {
		n := args.add(keys)
		values := p.keysParameter(n)
		return fmt.Sprintf(`SELECT wanted.stored
FROM ROWS FROM (pg_catalog.unnest($%d::pg_catalog.text[]), pg_catalog.unnest(%s)) AS wanted (stored, key)
WHERE NOT %s`, n, values, p.lives("wanted.key", values)), args.values
	}
	return fmt.Sprintf("SELECT gone.key FROM pg_catalog.unnest(%s) AS gone (key)", p.withoutParent(args.add(keys))), args.values
}

// exactStatement deletes or changes those versions that are children of keys, locked by the clause lock.
func (p *Parent) exactStatement(names pgschema.Names, r *Reference, leaf Table, keys any, seen []version, lock string) (string, []any) {
	args := &arguments{}
	places, makers := make([]pgtype.TID, len(seen)), make([]uint32, len(seen))
	for i, v := range seen {
		places[i], makers[i] = v.place, v.maker
	}
	keysAt := args.add(keys)
	picked := fmt.Sprintf(`SELECT picked.ctid
FROM ROWS FROM (pg_catalog.unnest($%d::pg_catalog.tid[]), pg_catalog.unnest($%d::pg_catalog.xid[])) AS seen (place, maker)
CROSS JOIN LATERAL (
	SELECT picked.ctid FROM ONLY %s AS picked
	WHERE picked.ctid OPERATOR(pg_catalog.=) seen.place AND picked.xmin OPERATOR(pg_catalog.=) seen.maker AND (%s%s) IS TRUE
	OFFSET 0%s
) AS picked
WHERE true%s`, args.add(places), args.add(makers), leaf.SQL(), p.matches(r, "picked", p.keysParameter(keysAt)),
		r.restrictions("picked", args), lock, r.attached(leaf, args))
	return r.change(names, leaf, p.pointed(r, picked, keysAt, args), args), args.values
}

// stepElsewhere is step for children in another database than their parents. It reports whether there may be more rows at
// once. Rows that somebody has locked are left for the waiting pass.
func (r *run) stepElsewhere(ctx context.Context, c *chunk, t task) (more bool, err error) {
	form, lock := skipping, t.reference.lock()+" SKIP LOCKED"
	if c.how == waiting {
		form, lock = waiting, t.reference.lock()
	}
	limit := r.budget.rows(t.reference, r.breaker.limit(t, r.usual(t, form)))
	limits := r.limits(t, form)
	keys := keysOf(c.parent, c.tombstones)
	// Children of parents that live would fill the window again and again.
	if keys, err = r.gone(ctx, c, keys); err != nil {
		return false, err
	}
	var seen []version
	sql, args := c.parent.versionsStatement(t.reference, t.leaf, keys, limit)
	_, err = r.in(ctx, t.reference.Database, limits, batch.Statement{SQL: sql, Args: args, Scan: func(rows pgx.Rows) error {
		var v version
		_, err := pgx.ForEachRow(rows, []any{&v.place, &v.maker}, func() error {
			seen = append(seen, v)
			return nil
		})
		return err
	}})
	if err != nil || len(seen) == 0 {
		return false, err
	}
	if keys, err = r.gone(ctx, c, keys); err != nil {
		return false, err
	}
	var counted int64
	sql, args = c.parent.exactStatement(r.session(t.reference).Names, t.reference, t.leaf, keys, seen, lock)
	clean := batch.Statement{SQL: sql, Args: args, Scan: t.reference.counts(&counted), Counts: t.reference.figure(t.leaf)}
	unwatch := r.watch(ctx, t.reference.Database, form)
	affected, err := r.in(ctx, t.reference.Database, limits, clean)
	took := r.session(t.reference).Took()
	unwatch()
	if err != nil {
		return false, err
	}
	rows := affected[0]
	if clean.Scan != nil {
		rows = counted
	}
	// A window of locked rows alone is not read again before the waiting pass.
	more = rows > 0 && len(seen) == limit
	c.cleaned += rows
	r.cleaned(ctx, t, form, len(c.tombstones), rows, more)
	r.steer(ctx, t, form, rows, took)
	return more, nil
}

// gone returns those of keys that have no parent, or all where that does not matter.
func (r *run) gone(ctx context.Context, c *chunk, keys any) (any, error) {
	if c.anyway {
		return keys, nil
	}
	sql, args := c.parent.goneStatement(keys)
	integers, texts := []int64{}, []string{} // nil would be NULL, and no array at all.
	_, err := r.engine.Session.Run(ctx, batch.Statement{SQL: sql, Args: args, Scan: func(rows pgx.Rows) (err error) {
		if c.parent.Integer {
			integers, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		} else {
			texts, err = pgx.CollectRows(rows, pgx.RowTo[string])
		}
		return err
	}})
	if c.parent.Integer {
		return integers, err
	}
	return texts, err
}

// counts scans the number of rows of a statement that counts them itself; nil for all others.
func (r *Reference) counts(counted *int64) func(pgx.Rows) error {
	if r.Definition.CleanerClass == "" {
		return nil
	}
	return func(rows pgx.Rows) (err error) {
		*counted, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[int64])
		return err
	}
}

// figure is where a run counts rows of the reference in one leaf.
func (r *Reference) figure(leaf Table) *batch.Figure {
	figure := &batch.Figure{Field: "delete_count_by_table", Label: r.Child.Label(), Table: leaf.OID}
	if r.Updates() {
		figure.Field = "update_count_by_table"
	}
	return figure
}

// cleaned notes rows of a statement that went through.
func (r *run) cleaned(ctx context.Context, t task, form pass, parents int, rows int64, more bool) {
	r.breaker.succeeded(t)
	r.passed(t, form, rows)
	r.stats.clean(t.reference, rows)
	if form == skipping || form == direct {
		t.reference.learn(parents, rows, more)
	}
	if r.engine.Progress != nil {
		r.engine.Progress(ctx, r.stats)
	}
}
