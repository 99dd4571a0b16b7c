package loosefk

import (
	"context"
	"fmt"

	"sexton/internal/batch"
	"sexton/internal/drain"
)

// A child in another database is never seen in one snapshot with its parent. So a step there looks first at children, then
// at the parents' database, and then changes exactly those versions of rows that it has seen, and only those whose key had no
// parent in between. A parent that was there before its child is seen by the second look; a session that inserts the parent after
// that and gives it an old child makes a new version of that row, which the third statement leaves alone.

// exactly is true for references whose children are changed by versions.
func (r *Reference) exactly() bool { return r.Remote && r.keeps() }

// goneStatement returns those of keys that have no parent, as they came: the text of a value depends on the session.
func (p *Parent) goneStatement(keys any) (string, []any) {
	args := &drain.Args{}
	if !p.Integer && !p.Composite() {
		n := args.Add(keys)
		values := p.Parameter(n)
		return fmt.Sprintf(`SELECT wanted.stored
FROM ROWS FROM (pg_catalog.unnest($%d::pg_catalog.text[]), pg_catalog.unnest(%s)) AS wanted (stored, key)
WHERE NOT %s`, n, values, p.Lives("wanted.key", values)), args.Values
	}
	return fmt.Sprintf("SELECT gone.key FROM pg_catalog.unnest(%s) AS gone (key)", p.WithoutParent(args.Add(keys))), args.Values
}

// stepElsewhere is step for children in another database than their parents. It reports whether there may be more rows at
// once. Rows that somebody has locked are left for the waiting pass.
func (r *run) stepElsewhere(ctx context.Context, c *chunk, t task) (more bool, err error) {
	form, lock := skipping, t.reference.Lock()+" SKIP LOCKED"
	if c.how == waiting {
		form, lock = waiting, t.reference.Lock()
	}
	limit := r.budget.rows(t.reference, r.breaker.limit(t, r.usual(t, form)))
	limits := r.limits(t, form)
	keys := keysOf(c.parent, c.tombstones)
	// Children of parents that live would fill the window again and again.
	if keys, err = r.gone(ctx, c, keys); err != nil {
		return false, err
	}
	var seen drain.Rows
	of := drain.Keys{Of: &c.parent.Key, Values: keys, Keep: t.reference.keeping(c.tombstones)}
	sql, args := t.reference.PickStatement(t.leaf, "picked.ctid, picked.xmin", "", of, limit)
	_, err = r.in(ctx, t.reference.Database, limits, batch.Statement{SQL: sql, Args: args, Scan: seen.Scan})
	if err != nil || seen.Len() == 0 {
		return false, err
	}
	if of.Values, err = r.gone(ctx, c, keys); err != nil {
		return false, err
	}
	var counted int64
	sql, args = t.reference.ExactStatement(r.session(t.reference).Names, t.leaf, of, seen, lock)
	clean := batch.Statement{SQL: sql, Args: args, Scan: t.reference.counts(of.Keep, &counted), Counts: t.reference.figure(t.leaf)}
	clean.Audit = r.audit(c.parent, t.reference, c.tombstones)
	statements := []batch.Statement{clean}
	if of.Keep != nil {
		statements = []batch.Statement{of.Keep.Begin(r.session(t.reference).Names), clean}
	}
	unwatch := r.watch(ctx, t.reference.Database, form)
	affected, err := r.in(ctx, t.reference.Database, limits, statements...)
	took := r.session(t.reference).Took()
	unwatch()
	if err != nil {
		return false, err
	}
	rows := affected[len(affected)-1]
	if clean.Scan != nil {
		rows = counted
	}
	// A window of locked rows alone is not read again before the waiting pass.
	more = rows > 0 && seen.Len() == limit
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
	found := keysOf(c.parent, nil)
	_, err := r.engine.Session.Run(ctx, batch.Statement{SQL: sql, Args: args, Scan: keysInto(&found)})
	return found, err
}
