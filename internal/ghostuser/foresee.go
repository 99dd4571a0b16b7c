package ghostuser

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/batch"
	"sexton/internal/drain"
	"sexton/internal/fault"
	"sexton/internal/pgcatalog"
)

const (
	// mostForeseen bounds the rows of one column that Foresee counts, and all rows below deleted ones; foreseeTime bounds a statement.
	mostForeseen = 100_000
	foreseeTime  = 5 * time.Second
)

// Foresight foresees the deletion of a user.
type Foresight struct {
	// Moved, Deleted and Nullified count rows by table, and rows that refer to deleted ones and are kept by table.column. Capped reports that there are more.
	Moved, Deleted, Nullified map[string]int64
	Rows                      int64
	Capped                    bool
	// Forbidden names the rows that keep the user from being deleted.
	Forbidden []string
}

// Foresee counts what refers to a user in one READ ONLY transaction, and what native cascades take along in further ones.
func (p *Plan) Foresee(ctx context.Context, db interface {
	pgcatalog.Beginner
	drain.TxBeginner
}, user int64, hardDelete bool,
) (*Foresight, error) {
	seen := &Foresight{Moved: map[string]int64{}, Deleted: map[string]int64{}, Nullified: map[string]int64{}, Forbidden: []string{}}
	err := pgx.BeginTxFunc(ctx, db, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		const bound = "SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true), pg_catalog.set_config('statement_timeout', $1, true)"
		if _, err := tx.Exec(ctx, bound, foreseeTime.String()); err != nil {
			return err
		}
		for _, s := range p.steps(hardDelete) {
			if err := seen.count(ctx, tx, s, user); err != nil {
				return fmt.Errorf("count rows of %s: %w", s.label, err)
			}
		}
		return nil
	})
	if err != nil {
		return seen, err
	}
	removes := slices.DeleteFunc(slices.Clone(p.steps(hardDelete)), func(s *step) bool { return s.Action != drain.Remove })
	if err := seen.cascades(ctx, db, drain.ReadOnly(db, foreseeTime), p, removes, &job{userID: user}); err != nil {
		return seen, fmt.Errorf("count rows below: %w", err)
	}
	return seen, nil
}

// cascades adds what goes or changes with the rows of the steps, by foreign keys of the database. A row that would go in several ways counts once.
func (seen *Foresight) cascades(
	ctx context.Context, db pgcatalog.Beginner, send func(context.Context, batch.Limits, ...batch.Statement) error, p *Plan, steps []*step, j *job,
) error {
	oids := make([]uint32, len(steps))
	for i, s := range steps {
		oids[i] = s.Child.OID
	}
	below, err := drain.Below(ctx, db, oids)
	if err != nil {
		return err
	}
	r := &drain.Run{Session: &batch.Session{}, Send: send}
	known := map[uint32]map[drain.Place]bool{}
	// fresh returns how many rows of a window were not known before, and notes them.
	fresh := func(w *drain.Window) (n int64) {
		if known[w.Leaf.OID] == nil {
			known[w.Leaf.OID] = map[drain.Place]bool{}
		}
		for _, at := range w.Rows.At {
			if !known[w.Leaf.OID][at] {
				known[w.Leaf.OID][at] = true
				n++
			}
		}
		return n
	}
	var windows []*drain.Window
	for _, s := range steps {
		for _, leaf := range s.Leaves {
			args := &drain.Args{}
			sql := s.pick(leaf, "picked.ctid, picked.xmin", j, mostForeseen, args)
			rows, err := r.Versions(ctx, sql, args.Values...)
			if err != nil && fault.Judge(err).Verdict != fault.Timeout {
				return err
			}
			seen.Capped = seen.Capped || err != nil
			if root := below[s.Child.OID]; root != nil && rows.Len() > 0 {
				if w, found := root.Window(leaf.OID, rows); found {
					fresh(w)
					windows = append(windows, w)
				}
			}
		}
	}
	left := mostForeseen
	for _, w := range windows {
		c, err := r.Spread(ctx, w, w.Rows.Len()+left)
		if err != nil && fault.Judge(err).Verdict != fault.Timeout {
			return err
		}
		seen.Capped = seen.Capped || c.Most || err != nil
		left = max(0, left-(c.Rows-w.Rows.Len()))
		for _, with := range c.Windows[1:] {
			if n := fresh(with); n > 0 {
				seen.Deleted[p.label(with.Table)] += n
				seen.Rows += n
			}
		}
		for label, n := range c.Changed {
			seen.Nullified[label] += n
			seen.Rows += n
		}
	}
	return nil
}

// count adds the rows of one step.
func (seen *Foresight) count(ctx context.Context, tx pgx.Tx, s *step, user int64) error {
	args := &drain.Args{}
	sql := fmt.Sprintf("SELECT pg_catalog.count(*) FROM (SELECT FROM %s WHERE %s LIMIT $%d) AS counted",
		s.Whole(), s.matches("child", &job{userID: user}, args), args.Add(mostForeseen+1))
	var n int64
	if err := tx.QueryRow(ctx, sql, args.Values...).Scan(&n); err != nil || n == 0 {
		return err
	}
	if n > mostForeseen {
		n, seen.Capped = mostForeseen, true
	}
	switch s.Action {
	case drain.Forbid:
		seen.Forbidden = append(seen.Forbidden, fmt.Sprintf("%s: %s", s.label, s.refusal))
		return nil
	case drain.Move:
		seen.Moved[s.tableLabel] += n
	case drain.Remove:
		seen.Deleted[s.tableLabel] += n
	default:
		seen.Nullified[s.tableLabel] += n
	}
	seen.Rows += n
	return nil
}
