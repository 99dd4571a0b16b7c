package drain

import (
	"context"
	"slices"

	"sexton/internal/batch"
	"sexton/internal/pgcatalog"
)

// MostInRing is the most rows that one statement may delete by the keys' own actions: rows that refer to each other in a
// ring, where none is without another one below it.
const MostInRing = 1000

// Closure are rows and all that hangs below them.
type Closure struct {
	Windows []*Window
	Rows    int
	// Changed counts rows that would be changed, by key.
	Changed map[string]int64
	// Most reports that there is more than was asked for; then the windows are not all of it.
	Most bool
}

// Expand finds everything that would go with a window's rows or be changed, at most so many rows.
func (r *Run) Expand(ctx context.Context, w *Window, most int) (Closure, error) {
	c := Closure{Windows: []*Window{w}, Rows: len(w.Rows), Changed: map[string]int64{}}
	seen := map[uint32][]Tuple{w.Leaf.OID: w.Rows.tuples()}
	for i := 0; i < len(c.Windows) && c.Rows <= most; i++ {
		from := c.Windows[i]
		refs := slices.DeleteFunc(from.Table.RefsOf(from.Leaf), func(f *Ref) bool { return f.Action == Forbid })
		if len(refs) == 0 {
			continue
		}
		live, err := r.look(ctx, from, refs)
		if err != nil {
			return c, err
		}
		for _, f := range live {
			for _, leaf := range f.leaves {
				found, err := r.children(ctx, from, f, leaf, seen[leaf.OID], most+1-c.Rows)
				if err != nil {
					return c, err
				}
				if len(found) == 0 {
					continue
				}
				c.Rows += len(found)
				if f.Action == Remove {
					seen[leaf.OID] = append(seen[leaf.OID], found.tuples()...)
					c.Windows = append(c.Windows, &Window{Table: f.Table, Leaf: leaf, Rows: found})
				} else {
					c.Changed[f.Label()] += int64(len(found))
				}
				if c.Rows > most {
					c.Most = true
					return c, nil
				}
			}
		}
	}
	return c, nil
}

// has reports whether the row is in the closure.
func (c Closure) has(leaf pgcatalog.Table, at Tuple) bool {
	return slices.ContainsFunc(c.Windows, func(w *Window) bool {
		return w.Leaf.OID == leaf.OID && slices.ContainsFunc(w.Rows, func(row Row) bool { return row.At == at })
	})
}

// breakRings deletes rows that are left although others may not be locked any more: rings, in which each row has another one
// below it. As many go together as stay below MostInRing with all that hangs below them, by the keys' own actions. It
// returns the ones that could not.
func (r *Run) breakRings(ctx context.Context, w *Window, left Rows) (Rows, Result, error) {
	var kept Rows
	size := min(len(left), MostInRing/10)
	for len(left) > 0 {
		if r.Paused(ctx) {
			return left, Yielded, nil
		}
		n := min(size, len(left))
		piece := &Window{Table: w.Table, Leaf: w.Leaf, Rows: left[:n]}
		c, err := r.Expand(ctx, piece, MostInRing)
		if err != nil {
			result, err := r.Handle(err, w.Table.Label())
			return left, result, err
		}
		if n > 1 && (c.Most || r.holdsApart(c)) {
			size = max(1, n/2)
			continue
		}
		gone := false
		if !c.Most && !r.holdsApart(c) {
			if gone, err = r.pull(ctx, piece, c); err != nil {
				return left, Blocked, err
			}
		}
		if !gone {
			kept = append(kept, piece.Rows...)
		}
		left = left[n:]
	}
	return kept, Finished, nil
}

// holdsApart reports whether a row in hand that goes in a transaction of its own is in the closure.
func (r *Run) holdsApart(c Closure) bool {
	return slices.ContainsFunc(r.Stack, func(on *Window) bool {
		return on.Table.Apart && slices.ContainsFunc(on.Rows, func(row Row) bool { return c.has(on.Leaf, row.At) })
	})
}

// pull deletes a window's rows and leaves all the rest of their closure to the keys' own actions. It reports whether anything
// has gone. The error is one that ends the run.
func (r *Run) pull(ctx context.Context, w *Window, c Closure) (bool, error) {
	var statements []batch.Statement
	var fields, labels []string
	var below []int64
	for _, with := range c.Windows[1:] {
		for _, figure := range r.Owner.Figures(with.Table) {
			fields, labels, below = append(fields, figure.Field), append(labels, figure.Label), append(below, int64(len(with.Rows)))
		}
		if with.Table.Told {
			statements = append(statements, batch.Statement{
				SQL: r.Owner.tellStatement(with.Table, with.Leaf), Args: with.Rows.Args(r.Owner.ID),
			})
		}
	}
	var n, aside int64
	var gone []Tuple
	statements = append(statements, batch.Statement{
		SQL:  r.Owner.removeStatement(r.Session.Names, w.Table, w.Leaf, false, true),
		Args: w.Rows.Args(r.Owner.ID, r.Owner.label(w.Table), fields, labels, below),
		Scan: batch.One(&n, &gone, &aside),
	})
	for _, with := range c.Windows[1:] {
		if with.Table.Told {
			statements = append(statements, batch.Statement{SQL: goneStatement(with.Leaf), Args: with.Rows.Args()})
		}
	}
	judge := r.Watch(ctx, r.Session.Limits)
	err := r.Alter(ctx, r.Session.Limits, statements...)
	f := judge(err)
	f.Table = w.Table.Label()
	switch {
	case err != nil && f.Verdict == batch.Fatal:
		return false, err
	case err != nil:
		if !f.Lock() {
			r.Owner.Failed(f)
		}
		switch forbidden := f.SQLState == "23503" || f.SQLState == "23001"; {
		case f.Lock() || forbidden && r.Obstacle.Message == "":
			r.Obstacle = f
		case !forbidden && len(w.Rows) == 1 && r.Fault == nil:
			r.Fault = &f
		}
		return false, nil
	}
	r.Progress(ctx)
	if n == 0 && r.Obstacle.Message == "" {
		r.Obstacle = batch.Fault{Table: w.Table.Label(), Message: "rows stay although no session has locked them: a trigger or rule of the table does that"}
	}
	if n == 0 {
		return false, nil
	}
	r.gone(w.Table, n, aside)
	for _, with := range c.Windows[1:] {
		r.Owner.Gone(with.Table, int64(len(with.Rows)), 0)
	}
	return true, nil
}
