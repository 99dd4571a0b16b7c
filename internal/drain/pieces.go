package drain

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"sexton/internal/batch"
)

// remove deletes those of a window's rows below which nothing is left, piece by piece. It returns the others.
func (r *Run) remove(ctx context.Context, w *Window) (left Rows, _ Result, _ error) {
	t := w.Table
	return r.pieces(ctx, w, &t.size, func(ctx context.Context, piece Rows, limits batch.Limits, skip bool) (Rows, error) {
		var n, aside int64
		var gone []Tuple
		var statements []batch.Statement
		if !skip && (r.Waits || len(t.RefsOf(w.Leaf)) > 0) {
			// A session that is about to add rows below has a lock. Were it waited for in the deletion itself, the key's own action
			// would take all that they commit, be it a million rows: a statement does not look again at what it has seen.
			statements = append(statements, batch.Statement{SQL: lockStatement(w.Leaf), Args: piece.Args()})
		}
		statements = append(statements, batch.Statement{
			SQL:  r.Owner.removeStatement(r.Session.Names, t, w.Leaf, skip, false),
			Args: piece.Args(r.Owner.ID, r.Owner.label(t)),
			Scan: batch.One(&n, &gone, &aside),
		})
		if err := r.Alter(ctx, limits, statements...); err != nil {
			return piece, err
		}
		r.gone(t, n, aside)
		if n == int64(len(piece)) {
			return nil, nil
		}
		return piece.without(gone), nil
	})
}

// change does to a window's rows what the key's action says. Rows that stand on the stack as well are followed to where
// they are afterwards.
func (r *Run) change(ctx context.Context, f *Ref, w *Window) (left Rows, _ Result, _ error) {
	return r.pieces(ctx, w, &f.size, func(ctx context.Context, piece Rows, limits batch.Limits, skip bool) (Rows, error) {
		var old, moved, kept []Tuple
		var version []uint32
		sql := r.Owner.changeStatement(r.Session.Names, f, w.Leaf, skip)
		args := piece.Args(r.Owner.ID, f.Label())
		err := r.Alter(ctx, limits, batch.Statement{SQL: sql, Args: args, Scan: batch.One(&old, &moved, &version, &kept)})
		if err != nil {
			return piece, err
		}
		if n := int64(len(old) - len(kept)); n > 0 {
			r.Changes += n
			r.Owner.Altered(f, n)
		}
		if len(kept) > 0 {
			r.Blame(Keeps(f.Table.Label(), strings.Join(f.Columns, ", ")))
			r.Failed[w.Leaf.OID] = append(r.Failed[w.Leaf.OID], kept...)
		}
		for _, on := range r.Stack {
			if on.Leaf.OID == w.Leaf.OID {
				on.Rows.follow(old, moved, version)
			}
		}
		return piece.without(old), nil
	})
}

// follow replaces versions of rows by later versions.
func (r Rows) follow(old, moved []Tuple, version []uint32) {
	to := make(map[Tuple]int, len(old))
	for i, at := range old {
		to[at] = i
	}
	for i := range r {
		if n, found := to[r[i].At]; found {
			r[i] = Row{moved[n], version[n]}
		}
	}
}

// pieces steers through a window's rows with statements of the right size: try does something to some of them in one transaction, and returns those
// to which it has not done it. Others' locks are skipped, unless the run
// waits for them; a piece with an error is split until the row stands alone that is to blame.
func (r *Run) pieces(
	ctx context.Context, w *Window, size *Size, try func(ctx context.Context, piece Rows, limits batch.Limits, skip bool) (Rows, error),
) (left Rows, _ Result, _ error) {
	l := &Ladder{Size: size, Steer: r.Steer, First: cmp.Or(r.Rows, defaultRows), Waits: r.Waits, Splits: splits}
	for pending := w.Rows; ; pending = pending[1:] {
		at, result, f, err := r.Pieces(ctx, len(pending), l, func(ctx context.Context, at, n int, limits batch.Limits) error {
			rest, err := try(ctx, pending[at:at+n], limits, l.Skip)
			if err == nil {
				left = append(left, rest...)
			}
			return err
		})
		pending, f.Table = pending[at:], w.Table.Label()
		switch {
		case result == Finished:
			return left, Finished, nil
		case result == Yielded:
			return pending, Yielded, nil
		case f.Verdict == batch.Fatal:
			return pending, Blocked, err
		case f.Verdict == batch.Hopeless:
			r.Owner.Failed(f)
			if r.Fault == nil {
				r.Fault = &f
			}
			return w.Rows, Blocked, nil
		}
		r.giveUp(w, pending[0], f)
		left = append(left, pending[0])
	}
}

// splits reports whether an error may come of a single row: fewer rows would fail alike where the whole table is to blame.
func splits(err error) bool { return batch.Judge(err).Verdict != batch.Hopeless }

// giveUp leaves a row for good, or, where only another session's lock is in the way, for now.
func (r *Run) giveUp(w *Window, row Row, f batch.Fault) {
	if f.Lock() {
		r.Obstacle = f
		return
	}
	r.Blame(f)
	r.Failed[w.Leaf.OID] = append(r.Failed[w.Leaf.OID], row.At)
}

// Blame counts a fault of rows that are left for good.
func (r *Run) Blame(f batch.Fault) {
	r.Owner.Failed(f)
	r.Failures++
	if r.Fault == nil {
		r.Fault = &f
	}
}

// Keeps is the fault of a table with a statement that went through and changed rows to what they were.
func Keeps(table, column string) batch.Fault {
	return batch.Fault{Table: table, Verdict: batch.Row, Message: fmt.Sprintf(
		"rows keep their %s although no session has locked them: a trigger, a rule or a default of the table sees to that", column)}
}

// gone notes rows of a table that were deleted.
func (r *Run) gone(t *Table, rows, aside int64) {
	r.Changes += rows
	r.Owner.Gone(t, rows, aside)
}
