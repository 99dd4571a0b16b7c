package groupdelete

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"sexton/internal/batch"
	"sexton/internal/fault"
	"sexton/internal/pgcatalog"
)

// mostInRing is the most rows that one statement may delete by the keys' own actions: those that refer to each other in a
// ring, where none is without another one below it.
const mostInRing = 1000

// closure are rows and all that hangs below them.
type closure struct {
	windows []*window
	rows    int
	// changed counts those that would be changed, by key.
	changed map[string]int64
	// most tells that there is more than was asked for; then the windows are not all of it.
	most bool
}

// spread finds everything that would go with a window's rows or be changed, at most so many rows.
func (r *run) spread(ctx context.Context, w *window, most int) (closure, error) {
	c := closure{windows: []*window{w}, rows: w.rows.len(), changed: map[string]int64{}}
	seen := map[uint32][]place{w.leaf.OID: slices.Clone(w.rows.at)}
	for i := 0; i < len(c.windows) && c.rows <= most; i++ {
		from := c.windows[i]
		refs := slices.DeleteFunc(from.table.refsOf(from.leaf), func(f *ref) bool { return f.action == forbid })
		if len(refs) == 0 {
			continue
		}
		live, err := r.look(ctx, from, refs)
		if err != nil {
			return c, err
		}
		for _, f := range live {
			for _, leaf := range f.leaves {
				found, err := r.children(ctx, from, f, leaf, seen[leaf.OID], most+1-c.rows)
				if err != nil {
					return c, err
				}
				if found.len() == 0 {
					continue
				}
				c.rows += found.len()
				if f.action == remove {
					seen[leaf.OID] = append(seen[leaf.OID], found.at...)
					c.windows = append(c.windows, &window{table: f.table, leaf: leaf, rows: found})
				} else {
					c.changed[f.label()] += int64(found.len())
				}
				if c.rows > most {
					c.most = true
					return c, nil
				}
			}
		}
	}
	return c, nil
}

// has tells whether some row of the groups in hand is in the closure: such a row goes in a transaction of its own.
func (c closure) has(leaf pgcatalog.Table, at place) bool {
	return slices.ContainsFunc(c.windows, func(w *window) bool { return w.leaf.OID == leaf.OID && slices.Contains(w.rows.at, at) })
}

// uproot deletes rows that are left although others may not be locked any more: rings, in which each row has another one
// below it. As many go together as stay below mostInRing with all that hangs below them, by the keys' own actions. It
// returns those that could not.
func (r *run) uproot(ctx context.Context, w *window, left rows) (rows, result, error) {
	var kept rows
	size := min(left.len(), mostInRing/10)
	for left.len() > 0 {
		if r.paused(ctx) {
			return left, yielded, nil
		}
		n := min(size, left.len())
		piece := &window{table: w.table, leaf: w.leaf, rows: left.slice(0, n)}
		c, err := r.spread(ctx, piece, mostInRing)
		if err != nil {
			result, err := r.stumble(err, w.table.Label())
			return left, result, err
		}
		if n > 1 && (c.most || r.holdsGroup(c)) {
			size = max(1, n/2)
			continue
		}
		gone := false
		if !c.most && !r.holdsGroup(c) {
			if gone, err = r.pull(ctx, piece, c); err != nil {
				return left, blocked, err
			}
		}
		if !gone {
			kept.at, kept.version = append(kept.at, piece.rows.at...), append(kept.version, piece.rows.version...)
		}
		left = left.slice(n, left.len())
	}
	return kept, finished, nil
}

// holdsGroup tells whether one of the groups in hand is in the closure.
func (r *run) holdsGroup(c closure) bool {
	return slices.ContainsFunc(r.stack, func(on *window) bool {
		return on.table == r.engine.Plan.groups && slices.ContainsFunc(on.rows.at, func(at place) bool { return c.has(on.leaf, at) })
	})
}

// pull deletes a window's rows and leaves all the rest of their closure to the keys' own actions. It reports whether anything
// has gone. The error is one that ends the run.
func (r *run) pull(ctx context.Context, w *window, c closure) (bool, error) {
	plan, names := r.engine.Plan, r.session.Names
	var statements []batch.Statement
	var fields, labels []string
	var below []int64
	for _, with := range c.windows[1:] {
		for _, figure := range with.table.figures() {
			fields, labels, below = append(fields, figure.Field), append(labels, figure.Label), append(below, int64(with.rows.len()))
		}
		if with.table.what != ordinary {
			statements = append(statements, batch.Statement{
				SQL: plan.tellStatement(names, with.table, with.leaf), Args: []any{with.rows.at, with.rows.version, r.engine.GroupID},
			})
		}
	}
	var n, bots int64
	var gone []place
	statements = append(statements, batch.Statement{
		SQL:  plan.removeStatement(names, w.table, w.leaf, false, true),
		Args: []any{w.rows.at, w.rows.version, r.engine.GroupID, w.table.Label(), fields, labels, below},
		Scan: func(rows pgx.Rows) error {
			_, err := pgx.ForEachRow(rows, []any{&n, &gone, &bots}, func() error { return nil })
			return err
		},
	})
	for _, with := range c.windows[1:] {
		if with.table.what != ordinary {
			statements = append(statements, batch.Statement{SQL: goneStatement(with.leaf), Args: []any{with.rows.at, with.rows.version}})
		}
	}
	unwatch := r.watch(ctx)
	err := r.alter(ctx, r.session.Limits, 0, statements...)
	blocker := unwatch()
	f := fault.Judge(err)
	f.Table = w.table.Label()
	switch {
	case err != nil && f.Verdict == fault.Fatal:
		return false, err
	case err != nil:
		if blocker != "" && f.Verdict == fault.LockTimeout {
			f.Message += " (" + blocker + ")"
		}
		if !f.Lock() {
			r.stats.fail(f)
		}
		switch forbidden := f.SQLState == "23503" || f.SQLState == "23001"; {
		case f.Lock() || forbidden && r.obstacle.Message == "":
			r.obstacle = f
		case !forbidden && w.rows.len() == 1 && r.fault == nil:
			r.fault = &f
		}
		return false, nil
	}
	r.stats.Batches++
	if n == 0 && r.obstacle.Message == "" {
		r.obstacle = fault.Fault{Table: w.table.Label(), Message: "rows stay although nobody has locked them: a trigger or a rule of the table sees to that"}
	}
	if n == 0 {
		return false, nil
	}
	r.changed(n)
	r.stats.Bots += bots
	r.stats.count(w.table, n)
	for _, with := range c.windows[1:] {
		r.stats.count(with.table, int64(with.rows.len()))
	}
	r.progress(ctx)
	return true, nil
}

// ringOfGroup tells whether all that is left of a group are rows that are in a ring with it.
func (r *run) ringOfGroup(ctx context.Context, g int64) (bool, error) {
	w, err := r.groupWindow(ctx, g)
	if err != nil || w == nil {
		return false, err
	}
	c, err := r.spread(ctx, w, mostInRing)
	if err != nil || c.most {
		return false, err
	}
	for _, with := range c.windows[1:] {
		if with.table.what != ordinary {
			return false, nil // They have to go with their own events.
		}
	}
	return len(r.failed) == 0, nil
}
