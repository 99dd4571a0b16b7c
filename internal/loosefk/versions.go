package loosefk

import (
	"context"
	"fmt"

	"sexton/internal/batch"
	"sexton/internal/drain"
)

// A child in another database is never seen in one snapshot with its parent. So a task there looks first at children, then
// at the parents' database, and then changes exactly those versions of rows that it has seen, and only those whose key had no
// parent in between. A parent that was there before its child is seen by the second look; a session that inserts the parent after
// that and gives it an old child makes a new version of that row, which the third statement leaves alone.

// exactly is true for references whose children are changed by versions.
func (r *Reference) exactly() bool { return r.Remote }

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

// see reads which versions of rows the next statement of the task is about, and of whose keys. Children of parents that live would fill the window
// again and again, so those are left out before.
func (r *run) see(ctx context.Context, c *chunk, t *task, form pass, limit int) error {
	t.seen = nil
	keys, err := r.gone(ctx, c, keysOf(c.parent, c.tombstones))
	if err != nil {
		return err
	}
	sql, args := t.reference.PickStatement(t.leaf, "picked.ctid, picked.xmin", "", drain.Keys{Of: &c.parent.Key, Values: keys}, limit)
	_, err = r.in(ctx, t.reference.Database, r.limits(*t, form), batch.Statement{SQL: sql, Args: args, Scan: batch.Collect(&t.seen, drain.ScanRow)})
	if err == nil && len(t.seen) > 0 {
		t.without, err = r.gone(ctx, c, keys)
	}
	return err
}

// gone returns those of keys that have no parent.
func (r *run) gone(ctx context.Context, c *chunk, keys any) (any, error) {
	sql, args := c.parent.goneStatement(keys)
	found := keysOf(c.parent, nil)
	_, err := r.engine.Session.Run(ctx, batch.Statement{SQL: sql, Args: args, Scan: keysInto(&found)})
	return found, err
}
