package drain

import (
	"context"

	"github.com/jackc/pgx/v5"

	"sexton/internal/batch"
	"sexton/internal/fault"
)

// remove deletes those of a window's rows below which nothing is left, piece by piece. It returns the others.
func (r *Run) remove(ctx context.Context, w *Window) (left Rows, _ Result, _ error) {
	t := w.Table
	return r.pieces(ctx, w, &t.rows, &t.slow, func(ctx context.Context, piece Rows, limits batch.Limits, skip bool) (Rows, error) {
		var n, aside int64
		var gone []Place
		var statements []batch.Statement
		if !skip && (r.Patient || len(t.RefsOf(w.Leaf)) > 0) {
			// A session that is about to add rows below has a lock. Were it waited for in the deletion itself, the key's own action
			// would take all that they commit, be it a million rows: a statement does not look again at what it has seen.
			statements = append(statements, batch.Statement{SQL: lockStatement(w.Leaf), Args: []any{piece.At, piece.Version}})
		}
		statements = append(statements, batch.Statement{
			SQL:  r.Owner.removeStatement(r.Session.Names, t, w.Leaf, skip, false),
			Args: []any{piece.At, piece.Version, r.Owner.ID, r.Owner.label(t)},
			Scan: func(result pgx.Rows) error {
				_, err := pgx.ForEachRow(result, []any{&n, &gone, &aside}, func() error { return nil })
				return err
			},
		})
		if err := r.Alter(ctx, limits, statements...); err != nil {
			return piece, err
		}
		r.gone(t, n, aside)
		if n == int64(piece.Len()) {
			return Rows{}, nil
		}
		return piece.without(gone), nil
	})
}

// change does to a window's rows what the key's action says. Rows that stand on the stack as well are followed to where
// they are afterwards.
func (r *Run) change(ctx context.Context, f *Ref, w *Window) (left Rows, _ Result, _ error) {
	slow := false
	return r.pieces(ctx, w, &f.rows, &slow, func(ctx context.Context, piece Rows, limits batch.Limits, skip bool) (Rows, error) {
		var old, moved []Place
		var version []uint32
		sql := r.Owner.changeStatement(r.Session.Names, f, w.Leaf, skip)
		args := []any{piece.At, piece.Version, r.Owner.ID, f.Label()}
		err := r.Alter(ctx, limits, batch.Statement{SQL: sql, Args: args, Scan: func(result pgx.Rows) error {
			_, err := pgx.ForEachRow(result, []any{&old, &moved, &version}, func() error { return nil })
			return err
		}})
		if err != nil {
			return piece, err
		}
		if n := int64(len(old)); n > 0 {
			r.Changes += n
			r.Owner.Altered(f, n)
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
func (r Rows) follow(old, moved []Place, version []uint32) {
	to := make(map[Place]int, len(old))
	for i, at := range old {
		to[at] = i
	}
	for i, at := range r.At {
		if n, found := to[at]; found {
			r.At[i], r.Version[i] = moved[n], version[n]
		}
	}
}

// attempt does something to rows in one transaction and returns those to which it has not done it.
type attempt func(ctx context.Context, piece Rows, limits batch.Limits, skip bool) (Rows, error)

// pieces steers through a window's rows with statements of the right size. Others' locks are skipped, unless the run is
// patient; a piece with an error is split until the row stands alone that is to blame.
func (r *Run) pieces(ctx context.Context, w *Window, size *float64, slow *bool, try attempt) (left Rows, _ Result, _ error) {
	if *size == 0 {
		*size = defaultRows
		if r.Rows > 0 {
			*size = float64(r.Rows)
		}
	}
	pending, skip, most, beaten := w.Rows, false, largestBatch, 0
	for pending.Len() > 0 {
		if r.Paused(ctx) {
			return pending, Yielded, nil
		}
		n := min(max(int(*size), 1), most, pending.Len())
		piece := pending.slice(0, n)
		limits := r.Session.Limits
		if !r.Patient && !*slow {
			limits = r.Steer.Limits(limits)
		}
		unwatch := r.Watch(ctx)
		rest, err := try(ctx, piece, limits, skip)
		took := r.Session.Took()
		blocker := unwatch()
		f := fault.In(err, w.Table.Label())
		switch {
		case err == nil:
			*size = r.Steer.Learn(*size, int64(n), 0, took)
			r.Progress(ctx)
			r.Pace.Breathe(ctx, took)
			left.At, left.Version = append(left.At, rest.At...), append(left.Version, rest.Version...)
			pending, most, beaten = pending.slice(n, pending.Len()), min(2*most, largestBatch), 0
			continue
		case f.Verdict == fault.Fatal:
			return pending, Blocked, err
		case r.Ended():
			return pending, Yielded, nil
		case f.Verdict == fault.LockTimeout && !r.Patient && !skip:
			skip = true
			continue
		case f.Verdict == fault.Conflict && beaten < mostBeaten:
			beaten++
			continue
		case f.Verdict == fault.Timeout && n > 1:
			*size = r.Steer.TimedOut(float64(n))
			continue
		case f.Verdict == fault.Timeout && !*slow && !r.Patient:
			*slow = true
			continue
		case f.Verdict == fault.Hopeless: // Fewer rows would fail alike.
			r.Owner.Failed(f)
			if r.Fault == nil {
				r.Fault = &f
			}
			return w.Rows, Blocked, nil
		case n > 1:
			most = (n + 1) / 2
			continue
		}
		if blocker != "" && f.Verdict == fault.LockTimeout {
			f.Message += " (" + blocker + ")"
		}
		r.giveUp(w, piece, f)
		left.At, left.Version = append(left.At, piece.At...), append(left.Version, piece.Version...)
		pending = pending.slice(n, pending.Len())
	}
	return left, Finished, nil
}

// mostBeaten is how many deadlocks and the like are tried again with the same rows.
const mostBeaten = 5

// giveUp leaves a row for good, or, where only somebody else's lock is in the way, for now.
func (r *Run) giveUp(w *Window, row Rows, f fault.Fault) {
	if f.Lock() {
		r.Obstacle = f
		return
	}
	r.Owner.Failed(f)
	r.Failures++
	r.Failed[w.Leaf.OID] = append(r.Failed[w.Leaf.OID], row.At...)
	if r.Fault == nil {
		r.Fault = &f
	}
}

// gone notes rows of a table that were deleted.
func (r *Run) gone(t *Table, rows, aside int64) {
	r.Changes += rows
	r.Owner.Gone(t, rows, aside)
}
