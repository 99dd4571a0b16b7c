package ghostuser

import (
	"context"
	"fmt"
	"slices"
	"time"

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

// Foresee counts what refers to a user, and what native cascades take along, in READ ONLY transactions.
func (p *Plan) Foresee(ctx context.Context, db interface {
	pgcatalog.Beginner
	drain.TxBeginner
}, user int64, hardDelete bool,
) (*Foresight, error) {
	seen := &Foresight{Moved: map[string]int64{}, Deleted: map[string]int64{}, Nullified: map[string]int64{}, Forbidden: []string{}}
	send := drain.ReadOnly(db, foreseeTime)
	for _, s := range p.steps(hardDelete) {
		if err := send(ctx, batch.Limits{}, seen.count(s, user)); err != nil {
			return seen, fmt.Errorf("count rows of %s: %w", s.label, err)
		}
	}
	removes := slices.DeleteFunc(slices.Clone(p.steps(hardDelete)), func(s *step) bool { return s.Action != drain.Remove })
	if err := seen.cascades(ctx, db, send, p, removes, &job{userID: user}); err != nil {
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

// count is the statement that counts the rows of one step.
func (seen *Foresight) count(s *step, user int64) batch.Statement {
	args := &drain.Args{}
	sql := fmt.Sprintf("SELECT pg_catalog.count(*) FROM (SELECT FROM %s WHERE %s LIMIT $%d) AS counted",
		s.Whole(), s.matches("child", &job{userID: user}, args), args.Add(mostForeseen+1))
	var n int64
	return batch.Statement{SQL: sql, Args: args.Values, Scan: batch.Each(func() { seen.add(s, n) }, &n)}
}

// add adds rows of one step.
func (seen *Foresight) add(s *step, n int64) {
	if n > mostForeseen {
		n, seen.Capped = mostForeseen, true
	}
	switch {
	case n == 0:
		return
	case s.Action == drain.Forbid:
		seen.Forbidden = append(seen.Forbidden, fmt.Sprintf("%s: %s", s.label, s.refusal))
		return
	case s.Action == drain.Move:
		seen.Moved[s.tableLabel] += n
	case s.Action == drain.Remove:
		seen.Deleted[s.tableLabel] += n
	default:
		seen.Nullified[s.tableLabel] += n
	}
	seen.Rows += n
}
