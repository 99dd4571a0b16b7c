package ghostuser

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"sexton/internal/batch"
	"sexton/internal/drain"
	"sexton/internal/fault"
	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
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
	// Loose are the rows that go or change later, by loose foreign keys from the deleted ones and from the user; at least as many where
	// Capped is set.
	Loose map[string]int64
	// Forbidden names the rows that keep the user from being deleted.
	Forbidden []string
}

// Foresee counts what refers to a user, what native cascades take along, and what loose references take later, in READ ONLY transactions.
func (p *Plan) Foresee(ctx context.Context, db interface {
	pgcatalog.Beginner
	drain.TxBeginner
}, user int64, hardDelete bool, loose ...drain.Loose,
) (*Foresight, error) {
	seen := &Foresight{Forbidden: []string{}}
	send := drain.ReadOnly(db, foreseeTime)
	natively, err := p.below(ctx, db, send, user, hardDelete, nil)
	if err != nil {
		return seen, err
	}
	seen.Moved, seen.Deleted, seen.Nullified = map[string]int64{}, maps.Clone(natively.Deleted), maps.Clone(natively.Nullified)
	seen.Rows, seen.Capped = natively.Rows, natively.Capped
	for _, s := range p.steps(hardDelete) {
		if err := send(ctx, batch.Limits{}, seen.count(s, user)); err != nil {
			return seen, fmt.Errorf("count rows of %s: %w", s.label, err)
		}
	}
	if len(loose) == 0 {
		return seen, nil
	}
	all, err := p.below(ctx, db, send, user, hardDelete, loose)
	if err != nil {
		return seen, err
	}
	seen.Loose = drain.Later([2]map[string]int64{all.Deleted, natively.Deleted}, [2]map[string]int64{all.Nullified, natively.Nullified})
	seen.Capped = seen.Capped || all.Capped
	return seen, nil
}

// below counts what goes or changes with the rows of the steps that delete, and, by loose references, with the user.
func (p *Plan) below(
	ctx context.Context, db pgcatalog.Beginner, send func(context.Context, batch.Limits, ...batch.Statement) error, user int64, hardDelete bool,
	loose []drain.Loose,
) (*Foresight, error) {
	seen := &Foresight{Deleted: map[string]int64{}, Nullified: map[string]int64{}}
	return seen, problem.Doing(seen.cascades(ctx, db, send, p, p.steps(hardDelete), &job{userID: user}, loose), "count rows below")
}

// cascades adds what goes or changes with the rows of the steps, by foreign keys of the database. A row that would go in several ways counts once.
func (seen *Foresight) cascades(
	ctx context.Context, db pgcatalog.Beginner, send func(context.Context, batch.Limits, ...batch.Statement) error, p *Plan, every []*step, j *job,
	loose []drain.Loose,
) error {
	steps := slices.DeleteFunc(slices.Clone(every), func(s *step) bool { return s.Action != drain.Remove })
	var oids []uint32
	for _, s := range steps {
		oids = append(oids, s.Child.OID)
	}
	if len(loose) > 0 {
		oids = append(oids, p.users.OID)
	}
	below, err := drain.Below(ctx, db, oids, loose...)
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
	if users := below[p.users.OID]; users != nil && len(loose) > 0 {
		// The steps are about its other keys and columns.
		users.Refs = slices.DeleteFunc(users.Refs, func(f *drain.Ref) bool {
			return f.Constraint != "" || slices.ContainsFunc(every, func(s *step) bool {
				return s.Child.OID == f.Table.OID && slices.Equal(s.Columns, f.Columns)
			})
		})
		for _, leaf := range users.Leaves {
			sql := fmt.Sprintf("SELECT leaving.ctid, leaving.xmin FROM ONLY %s AS leaving WHERE leaving.id OPERATOR(pg_catalog.=) $1", leaf.SQL())
			rows, err := r.Versions(ctx, sql, j.userID)
			if err != nil {
				return err
			}
			if w, found := users.Window(leaf.OID, rows); found && rows.Len() > 0 {
				windows = append(windows, w)
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
