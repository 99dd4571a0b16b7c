package groupdelete

import (
	"context"

	"github.com/jackc/pgx/v5"

	"sexton/internal/batch"
	"sexton/internal/fault"
)

// remove deletes those of a window's rows below which nothing is left, piece by piece. It returns the others.
func (r *run) remove(ctx context.Context, w *window) (left rows, _ result, _ error) {
	t := w.table
	return r.pieces(ctx, w, &t.rows, &t.slow, func(ctx context.Context, piece rows, limits batch.Limits, skip bool) (rows, error) {
		var n, bots int64
		var gone []place
		var statements []batch.Statement
		if !skip && len(t.refsOf(w.leaf)) > 0 {
			// Whoever is about to add rows below has a lock. Were it waited for in the deletion itself, the key's own action
			// would take all that they commit, be it a million rows: a statement does not look again at what it has seen.
			statements = append(statements, batch.Statement{SQL: lockStatement(w.leaf), Args: []any{piece.at, piece.version}})
		}
		statements = append(statements, batch.Statement{
			SQL:  r.engine.Plan.removeStatement(r.session.Names, t, w.leaf, skip, false),
			Args: []any{piece.at, piece.version, r.engine.GroupID, t.Label()},
			Scan: func(result pgx.Rows) error {
				_, err := pgx.ForEachRow(result, []any{&n, &gone, &bots}, func() error { return nil })
				return err
			},
		})
		if err := r.alter(ctx, limits, 0, statements...); err != nil {
			return piece, err
		}
		r.changed(n)
		r.stats.Bots += bots
		r.stats.count(t, n)
		if n == int64(piece.len()) {
			return rows{}, nil
		}
		return piece.without(gone), nil
	})
}

// change does to a window's rows what the key's action says. Rows that stand on the stack as well are followed to where
// they are afterwards.
func (r *run) change(ctx context.Context, f *ref, w *window) (left rows, _ result, _ error) {
	slow := false
	return r.pieces(ctx, w, &f.rows, &slow, func(ctx context.Context, piece rows, limits batch.Limits, skip bool) (rows, error) {
		var old, moved []place
		var version []uint32
		sql := f.changeStatement(r.session.Names, w.leaf, skip)
		args := []any{piece.at, piece.version, r.engine.GroupID, f.label()}
		err := r.alter(ctx, limits, 0, batch.Statement{SQL: sql, Args: args, Scan: func(result pgx.Rows) error {
			_, err := pgx.ForEachRow(result, []any{&old, &moved, &version}, func() error { return nil })
			return err
		}})
		if err != nil {
			return piece, err
		}
		r.changed(int64(len(old)))
		if len(old) > 0 {
			r.stats.Nullified[f.label()] += int64(len(old))
		}
		for _, on := range r.stack {
			if on.leaf.OID == w.leaf.OID {
				on.rows.follow(old, moved, version)
			}
		}
		return piece.without(old), nil
	})
}

// follow replaces versions of rows by those that came after them.
func (r rows) follow(old, moved []place, version []uint32) {
	to := make(map[place]int, len(old))
	for i, at := range old {
		to[at] = i
	}
	for i, at := range r.at {
		if n, found := to[at]; found {
			r.at[i], r.version[i] = moved[n], version[n]
		}
	}
}

// attempt does something to rows in one transaction and returns those to which it has not done it.
type attempt func(ctx context.Context, piece rows, limits batch.Limits, skip bool) (rows, error)

// pieces steers through a window's rows with statements of the right size. Others' locks are skipped, unless the run is
// patient; a piece with an error is split until the row stands alone that is to blame.
func (r *run) pieces(ctx context.Context, w *window, size *float64, slow *bool, try attempt) (left rows, _ result, _ error) {
	if *size == 0 {
		*size = defaultRows
		if r.engine.Sizes.Rows > 0 {
			*size = float64(r.engine.Sizes.Rows)
		}
	}
	pending, skip, most, beaten := w.rows, false, largestBatch, 0
	for pending.len() > 0 {
		if r.paused(ctx) {
			return pending, yielded, nil
		}
		n := min(max(int(*size), 1), most, pending.len())
		piece := pending.slice(0, n)
		limits := r.session.Limits
		if !r.patient && !*slow {
			limits = r.steer.Limits(limits)
		}
		unwatch := r.watch(ctx)
		rest, err := try(ctx, piece, limits, skip)
		took := r.session.Took()
		blocker := unwatch()
		f := fault.Judge(err)
		f.Table = w.table.Label()
		switch {
		case err == nil:
			*size = r.steer.Learn(*size, int64(n), 0, took)
			r.stats.Batches++
			r.progress(ctx)
			r.pace.Breathe(ctx, took)
			left.at, left.version = append(left.at, rest.at...), append(left.version, rest.version...)
			pending, most, beaten = pending.slice(n, pending.len()), min(2*most, largestBatch), 0
			continue
		case f.Verdict == fault.Fatal:
			return pending, blocked, err
		case r.ended():
			return pending, yielded, nil
		case f.Verdict == fault.LockTimeout && !r.patient && !skip:
			skip = true
			continue
		case f.Verdict == fault.Conflict && beaten < mostBeaten:
			beaten++
			continue
		case f.Verdict == fault.Timeout && n > 1:
			*size = r.steer.TimedOut(float64(n))
			continue
		case f.Verdict == fault.Timeout && !*slow && !r.patient:
			*slow = true
			continue
		case f.Verdict == fault.Hopeless: // Fewer rows would fail alike.
			r.stats.fail(f)
			if r.fault == nil {
				r.fault = &f
			}
			return w.rows, blocked, nil
		case n > 1:
			most = (n + 1) / 2
			continue
		}
		if blocker != "" && f.Verdict == fault.LockTimeout {
			f.Message += " (" + blocker + ")"
		}
		r.giveUp(w, piece, f)
		left.at, left.version = append(left.at, piece.at...), append(left.version, piece.version...)
		pending = pending.slice(n, pending.len())
	}
	return left, finished, nil
}

// mostBeaten is how many deadlocks and the like are tried again with the same rows.
const mostBeaten = 5

// giveUp leaves a row for good, or, where only somebody else's lock is in the way, for now.
func (r *run) giveUp(w *window, row rows, f fault.Fault) {
	if f.Lock() {
		r.obstacle = f
		return
	}
	r.stats.fail(f)
	r.failures++
	r.failed[w.leaf.OID] = append(r.failed[w.leaf.OID], row.at...)
	if r.fault == nil {
		r.fault = &f
	}
}

// watch finds out whom a patient batch waits for, until the function that it returns is called.
func (r *run) watch(ctx context.Context) func() string {
	if !r.patient {
		return func() string { return "" }
	}
	return r.pace.Watch(ctx, r.engine.Blocker)
}
