package drain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"sexton/internal/batch"
	"sexton/internal/pgcatalog"
)

// Where nothing can hang below rows, one statement finds and deletes them, so that no tuple of theirs travels to the client and back. Where that
// holds for all that can refer to a window's rows, these go in the same transaction, without a look of their own. The transaction is REPEATABLE READ:
// a row that another session changes meanwhile fails it, and so does a row that the key's own action finds below and its snapshot does not show.
// Whatever fails is left to the way that looks at every row.

const (
	// mostSwept is how many leaves with rows below may be swept in one transaction with the rows above.
	mostSwept = 20
	// firstBelow is how many rows below each row are expected to begin with.
	firstBelow = 20
)

// branch is a leaf of a key's table.
type branch struct {
	*Ref

	leaf pgcatalog.Table
}

// sweepable reports whether one statement may find and delete the rows of a key.
func (r *Run) sweepable(f *Ref) bool {
	return f.Action == Remove && len(f.Table.Refs) == 0 && r.plain(f.Table) && !slices.ContainsFunc(f.leaves, func(leaf pgcatalog.Table) bool {
		return len(r.Failed[leaf.OID]) > 0
	})
}

// plain reports whether nothing but counts belongs to the end of a table's rows.
func (r *Run) plain(t *Table) bool { return !t.Told && !t.Apart && r.Owner.Beside(t) == Beside{} }

// branches are all leaves whose rows can refer to a window's, if these may go in one transaction with all such rows; else there are none. Only a foreign
// key fails that transaction over rows that come in below meanwhile.
func (r *Run) branches(w *Window, refs []*Ref) (all []branch) {
	if r.Waits || !r.plain(w.Table) || len(r.Failed[w.Leaf.OID]) > 0 {
		return nil
	}
	for _, f := range refs {
		if f.Constraint == "" || !r.sweepable(f) {
			return nil
		}
		for _, leaf := range f.leaves {
			all = append(all, branch{f, leaf})
		}
	}
	if len(all) > mostSwept {
		return nil
	}
	return all
}

// sweep deletes the rows of branches that refer to a window's rows, and these behind them if above is set. It returns the window's rows with which it
// got nowhere; their obstacle is for the caller to find.
func (r *Run) sweep(ctx context.Context, w *Window, branches []branch, above bool) (left Rows, _ Result, _ error) {
	t := w.Table
	t.below = cmp.Or(t.below, firstBelow)
	l := &Ladder{Size: &branches[0].size, Steer: r.Steer, First: cmp.Or(r.Rows, defaultRows)}
	rest, back := w.Rows, Tide{}
	for round := 0; len(rest) > 0; round++ {
		if r.Paused(ctx) {
			return rest, Yielded, nil
		}
		limit, n := l.Rows(), len(rest)
		if above {
			n = min(n, max(1, int(float64(limit)/(1+t.below))))
		}
		piece := rest[:n]
		below, gone, through, err := r.sweepPiece(ctx, &Window{Table: t, Leaf: w.Leaf, Rows: piece}, branches, limit, l, above)
		switch {
		case err != nil && batch.Judge(err).Verdict == batch.Fatal, errors.Is(err, ErrCancelled):
			return rest, Blocked, err
		case err != nil && r.Pace.Ended():
			return rest, Yielded, nil
		case err != nil, above && round == MostRounds:
			return append(left, rest...), Blocked, nil //nolint:nilerr // The way that looks at every row meets it again.
		}
		if below+gone > 0 {
			r.Passed(ctx, l, below+gone, r.Session.Took())
		}
		if above {
			t.below = (t.below + float64(below)/float64(n)) / 2
			if n > len(w.Rows)/2 { // More of them at once save looks.
				t.window = min(largestWindow, 2*max(t.window, firstWindow))
			}
		}
		switch {
		case through && (!above || gone == int64(n)):
			rest, round = rest[n:], 0
		case through || below == 0:
			left, rest, round = append(left, piece...), rest[n:], 0
		case !above && r.turns(ctx, &back, below, w, branches[0].Ref, branches[0].leaf, []Tuple{}):
			w.Spins = true
			return rest, Blocked, nil
		}
	}
	return left, Finished, nil
}

// sweepPiece is one transaction of sweep. It returns how many rows below, and how many of the window's, are gone, and whether none below is left.
func (r *Run) sweepPiece(
	ctx context.Context, w *Window, branches []branch, limit int, l *Ladder, above bool,
) (below, gone int64, through bool, err error) {
	var statements []batch.Statement
	counts := make([]int64, len(branches)+1)
	add := func(t *Table, leaf pgcatalog.Table, found string, most int) {
		statements = append(statements, batch.Statement{
			SQL:  r.Owner.sweepStatement(r.Session.Names, t, leaf, found, len(statements) == 0),
			Args: w.Rows.Args(r.Owner.ID, r.Owner.label(t), most),
			Scan: batch.One(&counts[len(statements)], &through),
		})
	}
	for _, b := range branches {
		add(b.Table, b.leaf, sweptStatement(w.Leaf, b.Ref, b.leaf), limit)
	}
	if above {
		// Behind the others: their triggers still find the row above.
		add(w.Table, w.Leaf, aboveStatement(w.Leaf), len(w.Rows)+1)
	}
	limits := l.Limits(r.Session.Limits)
	limits.Repeatable = true
	judge := r.Watch(ctx, limits)
	err = r.Alter(ctx, limits, statements...)
	if f := judge(err); err != nil {
		if f.Verdict == batch.Timeout {
			l.Size.TimedOut(l.Steer, limit)
		}
		return 0, 0, false, err
	}
	for i, b := range branches {
		r.gone(b.Table, counts[i], 0)
		below += counts[i]
	}
	if gone = counts[len(branches)]; gone > 0 {
		r.gone(w.Table, gone, 0)
	}
	return below, gone, through, nil
}

// restSQL is the setting of a transaction that is x where rows below may be left, and empty in all others.
const restSQL = "pg_catalog.current_setting('sexton.rest')"

// sweptStatement finds at most $5 rows of the key, in one of its leaves, that refer to the window's.
func sweptStatement(leaf pgcatalog.Table, f *Ref, in pgcatalog.Table) string {
	return fmt.Sprintf(`%s,
found AS MATERIALIZED (SELECT ARRAY(
	SELECT below.at
	FROM parents AS parent
	CROSS JOIN LATERAL (SELECT child.ctid AS at FROM ONLY %s AS child WHERE %s OFFSET 0) AS below
	LIMIT $5
) AS tuples)`, parents(leaf, []*Ref{f}), in.SQL(), f.matches("parent"))
}

// aboveStatement finds the window's rows, at most $5, unless rows below may be left.
func aboveStatement(leaf pgcatalog.Table) string {
	return fmt.Sprintf(`%s,
found AS MATERIALIZED (SELECT ARRAY(
	SELECT want.at FROM want JOIN ONLY %s AS target ON target.ctid OPERATOR(pg_catalog.=) want.at AND target.xmin OPERATOR(pg_catalog.=) want.version
	WHERE %s OPERATOR(pg_catalog.=) ''
	LIMIT $5
) AS tuples)`, wantSQL, leaf.SQL(), restSQL)
}

// sweepStatement deletes the rows of a leaf at the tuples of the CTE found, and counts them for the owner $3 and the table $4 of the run. It
// returns how many it deleted, and whether the transaction's statements up to it have left none: each has found fewer than its limit and
// deleted all that it found.
func (o *Owner) sweepStatement(names pgcatalog.Names, t *Table, leaf pgcatalog.Table, found string, first bool) string {
	before := restSQL
	if first {
		before = "''"
	}
	return strings.Join([]string{"WITH " + found, fmt.Sprintf(`gone AS (
	DELETE FROM ONLY %s AS target WHERE target.ctid OPERATOR(pg_catalog.=) ANY ((SELECT found.tuples FROM found)::pg_catalog.tid[]) RETURNING 1
)`, leaf.SQL()), "total AS MATERIALIZED (SELECT pg_catalog.count(*) AS rows FROM gone)" + o.Deleted, fmt.Sprintf(`swept AS MATERIALIZED (
	SELECT pg_catalog.set_config('sexton.rest', CASE
		WHEN total.rows OPERATOR(pg_catalog.=) pg_catalog.cardinality(found.tuples) AND total.rows OPERATOR(pg_catalog.<) $5::bigint THEN %s ELSE 'x'
	END, true) AS rest
	FROM total CROSS JOIN found
)
SELECT %s, swept.rest OPERATOR(pg_catalog.=) '' FROM total CROSS JOIN swept`, before, o.counts(names, t))}, ",\n")
}
