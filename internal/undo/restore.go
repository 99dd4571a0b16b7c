package undo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"sexton/internal/database"
	"sexton/internal/lease"
	"sexton/internal/problem"
)

const (
	// takeOver is how often leases are tried for before a worker that has one is made to give it up.
	takeOver = 3
	// pause is between two tries: a pass that is about to end may.
	pause = 100 * time.Millisecond
	// mostChanges bounds how often tables are read again that change under the work.
	mostChanges = 10
)

// Holder begins the names of the holders of leases that take deletions back or forget them. They yield to nothing but their silence.
const Holder = lease.UndoHolder

// ErrBusy says that another process takes a deletion back, or forgets one.
var ErrBusy = errors.New("another process takes a deletion back or forgets one; try again when it has ended, or its lease has")

// Report is the outcome of a Restore.
type Report struct {
	Unit *Unit `json:"deletion"`
	// Restored counts the rows that this call put back.
	Restored int64 `json:"restored"`
	// Left are rows that stay deleted, the first 10,000; LeftRows counts all.
	Left     []Left `json:"left"`
	LeftRows int64  `json:"left_rows"`
	// Triggers reports that the application's triggers fired, or would.
	Triggers bool `json:"triggers_fired"`
	DryRun   bool `json:"dry_run"`
	// Notes say what cannot come back at all, such as columns that are gone.
	Notes []string `json:"notes"`
}

func (r *Report) notef(format string, args ...any) {
	if note := fmt.Sprintf(format, args...); !slices.Contains(r.Notes, note) {
		r.Notes = append(r.Notes, note)
	}
}

// Restore puts the rows of a deletion back. What it cannot put back it names. Done twice it changes nothing more.
func (e *Engine) Restore(ctx context.Context, id int64, dryRun bool) (report *Report, err error) {
	report = &Report{Left: []Left{}, Notes: []string{}, DryRun: dryRun}
	e.silent = map[string]bool{}
	for _, db := range e.Databases {
		var older, may bool
		err := db.Pool.QueryRow(ctx, text("superuser")).Scan(&older, &may)
		if err == nil && !older {
			err = db.Pool.QueryRow(ctx, text("may_replicate")).Scan(&may)
		}
		if err != nil {
			return nil, fmt.Errorf("database %s: %w", db.Name, err)
		}
		e.silent[db.Name] = may && !e.FireTriggers
		report.Triggers = report.Triggers || !e.silent[db.Name]
	}
	if e, err = e.settled(ctx); err != nil {
		return nil, err
	}
	found := false
	err = e.with(ctx, id, !dryRun, func(u *unit) error {
		if err := e.follow(ctx, u); err != nil {
			return err
		}
		found = true
		if err := e.through(ctx, u, report); err != nil {
			return err
		}
		if !dryRun {
			if err := e.flush(ctx); err != nil {
				return err
			}
		}
		waiting, err := e.waiting(ctx, u)
		if err == nil {
			report.Unit, err = e.summary(ctx, u, waiting)
		}
		return err
	})
	if !found {
		return nil, err
	}
	return report, err
}

// with runs do on a deletion, with the rows of each of its sets that belong to it; held under the leases of all queues: no worker goes on with it meanwhile.
func (e *Engine) with(ctx context.Context, id int64, held bool, do func(*unit) error) (err error) {
	u, err := e.load(ctx, id)
	if err == nil && held {
		if err := e.acquire(ctx); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, e.release(context.WithoutCancel(ctx))) }()
		u, err = e.load(ctx, id) // With what the workers have done by now.
	}
	if err == nil {
		err = e.own(ctx, u)
	}
	if err != nil {
		return err
	}
	return do(u)
}

// through works on all sets until nothing more comes back: a row may have to wait for another one that it refers to. Each time at least one row comes
// back.
func (e *Engine) through(ctx context.Context, u *unit, report *Report) error {
	waiting, err := e.waiting(ctx, u)
	if err != nil {
		return err
	}
	for before := int64(-1); report.Restored > before; {
		before = report.Restored
		for at := 0; at < len(u.sets); {
			together := u.together(u.sets[at:], waiting, report.DryRun)
			if err := e.some(ctx, u, together, waiting, report); err != nil {
				return fmt.Errorf("database %s: restore rows of %s: %w", together[0].on.Name, together[0].Name, err)
			}
			at += len(together)
		}
		if report.DryRun {
			if err := e.foretell(ctx, u, report); err != nil {
				return err
			}
			break
		}
		for _, db := range e.Databases {
			if report.Restored > before {
				break // Rows may come back without a circle.
			}
			if err := e.again(func() error { return e.circles(ctx, u, db, waiting, report) }); err != nil {
				return fmt.Errorf("database %s: restore rows that refer to each other: %w", db.Name, err)
			}
		}
	}
	return e.leaveAll(ctx, u, report)
}

func (e *Engine) point(name string) error {
	if e.Reached == nil {
		return nil
	}
	return e.Reached(name)
}

// together are the first sets that one statement can restore: of one layout, whole, and small.
func (u *unit) together(sets []*set, waiting map[int64]bool, dryRun bool) []*set {
	first, rows, among := sets[0], 0, map[*set]bool{}
	for i, s := range sets {
		behind := func(above *set) bool { return len(above.restored) < len(above.owned) && !among[above] }
		rows += len(s.owned)
		if dryRun || i == setsAtOnce || rows > rowsAtOnce || s.on.Name != first.on.Name || s.layout.ID != first.layout.ID || len(s.Changed) > 0 ||
			len(s.owned) == 0 || len(s.owned) < int(s.Rows) || len(s.restored)+len(s.left)+len(s.refused) > 0 || waiting[s.ID] ||
			slices.ContainsFunc(s.Origins, func(id int64) bool { return slices.ContainsFunc(s.above(u, id), behind) }) {
			return sets[:max(1, i)]
		}
		among[s] = true
	}
	return sets
}

// some restores sets together or, where something is in the way of a row, one by one.
func (e *Engine) some(ctx context.Context, u *unit, sets []*set, waiting map[int64]bool, report *Report) error {
	if err := e.keep(ctx); err != nil {
		return err
	}
	if err := e.point("set"); err != nil {
		return err
	}
	f, err := e.shape(ctx, sets[0])
	if err != nil {
		return err
	}
	if f != nil && len(sets) > 1 && sets[0].unable(f, e.silent[sets[0].on.Name]) == "" {
		err := e.atOnce(ctx, u, sets, f)
		if err == nil {
			for _, s := range sets {
				s.restored = s.owned
				report.Restored += int64(len(s.owned))
			}
			report.gone(sets[0], f)
			return nil
		}
		refused, is := errors.AsType[*pgconn.PgError](err)
		if !errors.Is(err, errOneByOne) && !errors.Is(err, errKeptOut) && !errors.Is(err, errChanged) && (!is || strings.HasPrefix(refused.Code, "SX")) {
			return err
		}
	}
	for _, s := range sets {
		err := e.again(func() error {
			f, err := e.shape(ctx, s)
			if err != nil {
				return err
			}
			return e.set(ctx, u, s, f, waiting[s.ID], report)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// again does what was stopped by a change of a table anew.
func (e *Engine) again(do func() error) error {
	err := do()
	for tries := 1; errors.Is(err, errChanged) && tries < mostChanges; tries++ {
		clear(e.shapes)
		clear(e.operators)
		err = do()
	}
	return err
}

// errOneByOne takes sets back of which a row has no parent.
var errOneByOne = errors.New("a parent is missing")

// atOnce restores all rows of sets in one statement.
func (e *Engine) atOnce(ctx context.Context, u *unit, sets []*set, f *shape) error {
	all := *sets[0]
	all.others, all.Rows = sets[1:], 0
	for _, s := range sets {
		all.Rows += s.Rows // Whole sets, so that their rows need no places of their own.
	}
	checks, err := e.lookedUp(ctx, u, f, sets...)
	if err != nil {
		return err
	}
	b := back{set: &all, shape: f, checks: checks}
	return e.transact(ctx, all.on, func(tx pgx.Tx) error {
		_, suspect, err := b.try(ctx, tx, upTo(all.Rows))
		if err == nil && suspect != nil {
			err = errOneByOne
		}
		return err
	}, func(tx pgx.Tx) error {
		var marks pgx.Batch
		for _, s := range sets {
			marks.Queue(s.on.Names.Render(text("mark")), u.id, s.ID, s.Number, s.owned)
		}
		return problem.Doing(tx.SendBatch(ctx, &marks).Close(), "mark what is restored")
	})
}

// transact runs the steps of one transaction under the lease of the database's queue: rows come back, and are marked as restored.
func (e *Engine) transact(ctx context.Context, db database.Database, insert, mark func(tx pgx.Tx) error) error {
	return e.fenced(ctx, db, false, func(tx pgx.Tx) error {
		if err := e.point("begun"); err != nil {
			return err
		}
		if err := insert(tx); err != nil {
			return err
		}
		if err := e.point("inserted"); err != nil {
			return err
		}
		if err := mark(tx); err != nil {
			return err
		}
		return e.point("marked")
	})
}

// gone notes columns that the table has no more.
func (r *Report) gone(s *set, f *shape) {
	for at := range s.Columns {
		if name, _ := f.present(&s.layout, at); name == "" && len(s.Changed) == 0 {
			r.notef("column %s of %s is gone", s.Columns[at], f.Name)
		}
	}
}

// set restores what can be of a set's rows.
func (e *Engine) set(ctx context.Context, u *unit, s *set, f *shape, waiting bool, report *Report) error {
	var err error
	eligible := s.owned
	if !report.DryRun {
		if eligible, err = e.below(ctx, u, s, func(above *set) []int32 { return above.restored }); err != nil {
			return err
		}
	}
	s.orphaned, s.left = without(s.owned, eligible), nil
	wanted := without(without(eligible, s.restored), s.refusals())
	if s.untold {
		report.notef("which rows of %s belong to it cannot be told: %s is excluded", s.Name, strings.Join(s.Via, ", "))
	}
	switch {
	case len(wanted) == 0 && (!waiting || s.stopped):
		return nil
	case f == nil:
		s.left = map[string][]int32{"its table does not exist any more": wanted}
		return nil
	}
	report.gone(s, f)
	if reason := s.unable(f, e.silent[s.on.Name]); reason != "" {
		s.refuse(reason, wanted)
		wanted = nil
	}
	if report.DryRun {
		return e.foresee(ctx, s, f, wanted, report)
	}
	b := back{set: s, shape: f}
	if b.checks, err = e.lookedUp(ctx, u, f, s); err != nil {
		return err
	}
	if len(s.Changed) > 0 {
		wanted, b.handed = s.hand(wanted)
		if b.reminders, err = e.reminders(ctx, u, s, f); err != nil {
			return err
		}
	}
	b.parts = slices.Collect(slices.Chunk(wanted, rowsAtOnce))
	s.left = map[string][]int32{}
	for waiting && !s.stopped || len(b.parts)+len(b.handed) > 0 {
		b.done = came{}
		if err := e.transact(ctx, s.on,
			func(tx pgx.Tx) error { return e.restoreParts(ctx, tx, u, &b) }, func(tx pgx.Tx) error { return e.mark(ctx, tx, u, &b, waiting) },
		); err != nil {
			return err
		}
		s.stopped = true
		report.Restored += int64(len(b.done.places))
	}
	return nil
}

// restoreParts restores rows of a set for as long as one transaction may take.
func (e *Engine) restoreParts(ctx context.Context, tx pgx.Tx, u *unit, b *back) error {
	for until := time.Now().Add(timeAtOnce); len(b.parts) > 0 && len(b.done.places) < rowsAtOnce && time.Now().Before(until); {
		if err := b.restore(ctx, tx); err != nil {
			return err
		}
	}
	if err := e.remind(ctx, tx, u, b); err != nil {
		return err
	}
	return b.handOver(ctx, tx)
}

// mark notes the rows that the transaction has put back, and ends the clean-up after them.
func (e *Engine) mark(ctx context.Context, tx pgx.Tx, u *unit, b *back, waiting bool) error {
	restored := both(b.restored, b.done.places)
	if waiting {
		if err := e.stop(ctx, tx, b.set, restored); err != nil {
			return err
		}
	}
	if len(b.done.places) > 0 {
		if _, err := tx.Exec(ctx, b.on.Names.Render(text("mark")), u.id, b.ID, b.Number, restored); err != nil {
			return fmt.Errorf("mark what is restored: %w", err)
		}
	}
	b.restored = restored // A commit that fails ends the work.
	return nil
}
