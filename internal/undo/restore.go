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

	"sexton/internal/batch"
	"sexton/internal/database"
	"sexton/internal/fault"
	"sexton/internal/lease"
	"sexton/internal/pgcatalog"
)

const (
	// ttl is that of the leases, renewed between transactions.
	ttl = 2 * time.Minute
	// takeOver is how often leases are tried for before a worker that has one is made to give it up.
	takeOver = 3
	// mostLeft is how many rows that stay are named.
	mostLeft = 10_000
	// rowsAtOnce bounds one INSERT.
	rowsAtOnce = 5_000
)

// Left is a row that was not restored.
type Left struct {
	Database string `json:"database"`
	Table    string `json:"table"`
	Key      string `json:"key"`
	Reason   string `json:"reason"`
}

// Report is the outcome of a Restore.
type Report struct {
	Unit *Unit `json:"deletion"`
	// Restored counts the rows that this call put back.
	Restored int64 `json:"restored"`
	// Left are rows that stay deleted, the first 10,000; LeftRows counts all.
	Left     []Left `json:"left"`
	LeftRows int64  `json:"left_rows"`
	// Triggers tells that the application's triggers fired, or would.
	Triggers bool `json:"triggers_fired"`
	DryRun   bool `json:"dry_run"`
	// Notes say what cannot come back at all, such as columns that are gone.
	Notes []string `json:"notes"`
}

// Restore puts the rows of a deletion back. What it cannot put back it names. Done twice it changes nothing more.
func (e *Engine) Restore(ctx context.Context, id int64, dryRun bool) (report *Report, err error) {
	report = &Report{Left: []Left{}, Notes: []string{}, DryRun: dryRun}
	e.shapes, e.silent = map[shapeKey]*shape{}, map[string]bool{}
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
	if _, err := e.load(ctx, id); err != nil {
		return nil, err
	}
	if !dryRun {
		// No worker goes on with the deletion meanwhile.
		if err := e.acquire(ctx); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, e.release(context.WithoutCancel(ctx))) }()
	}
	u, err := e.load(ctx, id) // With what the workers have done by now.
	if err != nil {
		return nil, err
	}
	if err := e.own(ctx, u); err != nil {
		return nil, err
	}
	if err := e.through(ctx, u, report); err != nil {
		return report, err
	}
	report.Unit, err = e.summary(ctx, u)
	return report, err
}

// through works on all sets until nothing more comes back: a row may have to wait for another one that it refers to.
func (e *Engine) through(ctx context.Context, u *unit, report *Report) error {
	waiting, err := e.waiting(ctx, u)
	if err != nil {
		return err
	}
	const passes = 100
	for range passes {
		before := report.Restored
		report.Left, report.LeftRows, report.Notes = report.Left[:0], 0, report.Notes[:0]
		for _, s := range u.sets {
			eligible, err := e.members(ctx, u, s, func(above *set) []int32 {
				if report.DryRun {
					return above.owned
				}
				return above.restored
			})
			if err != nil {
				return err
			}
			if s.untold {
				report.Notes = append(report.Notes, fmt.Sprintf(
					"which rows of %s belong to it cannot be told: %s is excluded", s.Name, strings.Join(s.Via, ", ")))
			}
			if err := e.point("set"); err != nil {
				return err
			}
			if err := e.set(ctx, u, s, eligible, waiting[s.ID], report); err != nil {
				return fmt.Errorf("database %s: restore rows of %s: %w", s.on.Name, s.Name, err)
			}
		}
		if report.Restored == before || report.DryRun {
			return nil
		}
	}
	return nil
}

func (e *Engine) point(name string) error {
	if e.Reached == nil {
		return nil
	}
	return e.Reached(name)
}

// acquire takes the leases of all queues. A worker that has one loses it: its next batch is refused.
func (e *Engine) acquire(ctx context.Context) error {
	for _, queue := range e.Databases {
		for try := 0; ; try++ {
			granted, err := e.Leases.Acquire(ctx, e.Key(queue.Name), ttl, e.Databases...)
			if err == nil {
				e.leases = append(e.leases, granted)
				break
			}
			if _, held := errors.AsType[*lease.HeldError](err); !held || try >= 2*takeOver {
				return errors.Join(err, e.release(context.WithoutCancel(ctx)))
			}
			if try >= takeOver {
				jobs := e.Leases.Jobs
				if _, err := jobs.Pool.Exec(ctx, jobs.Names.Render(text("yield")), e.Key(queue.Name), e.Leases.Holder); err != nil {
					return fmt.Errorf("take over lease %s: %w", e.Key(queue.Name), err)
				}
			}
		}
	}
	return nil
}

func (e *Engine) release(ctx context.Context) (err error) {
	for _, granted := range e.leases {
		err = errors.Join(err, granted.Release(ctx))
	}
	e.leases = nil
	return err
}

// fenced runs do in a transaction under the lease of the database's queue.
func (e *Engine) fenced(ctx context.Context, db database.Database, do func(tx pgx.Tx) error) error {
	var own *lease.Lease
	renew := time.Since(e.renewed) > ttl/4
	for i, queue := range e.Databases {
		if renew {
			if err := e.leases[i].Renew(ctx); err != nil {
				return err
			}
		}
		if queue.Name == db.Name {
			own = e.leases[i]
		}
	}
	if renew {
		e.renewed = time.Now()
	}
	ctx, cancel := own.Context(ctx)
	defer cancel()
	return pgx.BeginTxFunc(ctx, db.Pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, db.Names.Render(text("begin")), own.Key(), own.Token(), e.StatementTimeout.Milliseconds(), e.LockTimeout.Milliseconds())
		if err != nil {
			return fmt.Errorf("begin: %w", err)
		}
		if _, err := tx.Exec(ctx, text("settings"), e.silent[db.Name]); err != nil {
			return fmt.Errorf("settle transaction: %w", err)
		}
		if _, err := tx.Exec(ctx, "SET CONSTRAINTS ALL IMMEDIATE"); err != nil {
			return fmt.Errorf("settle transaction: %w", err)
		}
		return do(tx)
	})
}

// set restores what can be of a set's rows.
func (e *Engine) set(ctx context.Context, u *unit, s *set, eligible []int32, waiting bool, report *Report) error {
	orphaned := without(s.owned, eligible)
	if len(orphaned) > 0 {
		if err := e.leave(ctx, s, orphaned, "its parent was not restored", report); err != nil {
			return err
		}
	}
	wanted := without(eligible, s.restored)
	f, err := e.shape(ctx, s)
	switch {
	case err != nil:
		return err
	case len(wanted) == 0 && !waiting:
		return nil
	case f == nil:
		return e.leave(ctx, s, wanted, "its table does not exist any more", report)
	}
	for at := range s.Columns {
		if name, _ := f.present(&s.layout, at); name == "" && len(s.Changed) == 0 {
			note := fmt.Sprintf("column %s of %s is gone", s.Columns[at], f.Name)
			if !slices.Contains(report.Notes, note) {
				report.Notes = append(report.Notes, note)
			}
		}
	}
	if report.DryRun {
		return e.foresee(ctx, s, f, wanted, report)
	}
	b := back{set: s, shape: f, checks: e.missing(u, s, f), reasons: map[string][]int32{}}
	err = e.fenced(ctx, s.on, func(tx pgx.Tx) error {
		b.done, b.reasons = nil, map[string][]int32{}
		for part := range slices.Chunk(wanted, rowsAtOnce) {
			if err := b.restore(ctx, tx, part); err != nil {
				return err
			}
		}
		restored := slices.Concat(s.restored, b.done)
		if waiting {
			if err := e.stop(ctx, tx, s, restored); err != nil {
				return err
			}
		}
		if len(b.done) == 0 {
			return nil
		}
		slices.Sort(restored)
		_, err := tx.Exec(ctx, s.on.Names.Render(text("mark")), u.id, s.Number, restored)
		return err
	})
	if err != nil {
		return err
	}
	s.restored = slices.Concat(s.restored, b.done)
	slices.Sort(s.restored)
	report.Restored += int64(len(b.done))
	for reason, places := range b.reasons {
		if err := e.leave(ctx, s, places, reason, report); err != nil {
			return err
		}
	}
	return nil
}

// without returns the sorted places that are not among others, which are sorted, too.
func without(places, others []int32) []int32 {
	var left []int32
	for _, place := range places {
		if _, found := slices.BinarySearch(others, place); !found {
			left = append(left, place)
		}
	}
	return left
}

// back is the restoring of one set in one transaction.
type back struct {
	*set

	shape   *shape
	checks  []check
	done    []int32
	reasons map[string][]int32
}

// restore puts rows back at once, and halves them around rows that cannot come back.
func (b *back) restore(ctx context.Context, tx pgx.Tx, places []int32) error {
	for len(places) > 0 {
		var came, lacking []int32
		var reason string
		err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) (err error) {
			if err := batch.UsePath(ctx, tx, b.on.Names); err != nil {
				return err
			}
			rows, _ := tx.Query(ctx, b.statement(), b.ID, b.Number, b.mask(places))
			if came, err = pgx.CollectRows(rows, pgx.RowTo[int32]); err != nil {
				return err
			}
			if came = slices.Sorted(slices.Values(came)); len(b.Changed) == 0 {
				came = places
			}
			if _, err := tx.Exec(ctx, ownPath); err != nil {
				return err
			}
			if lacking, reason, err = b.look(ctx, tx, came); err == nil && len(lacking) > 0 {
				err = errLacking
			}
			return err
		})
		switch {
		case errors.Is(err, errLacking):
			slices.Sort(lacking)
			lacking = slices.Compact(lacking)
			b.reasons[reason] = append(b.reasons[reason], lacking...)
			places = without(places, lacking)
		case err == nil:
			b.done = append(b.done, came...)
			if stayed := without(places, came); len(stayed) > 0 {
				b.reasons["the row has gone, or was changed since"] = append(b.reasons["the row has gone, or was changed since"], stayed...)
			}
			return nil
		default:
			return b.halve(ctx, tx, places, err)
		}
	}
	return nil
}

// ownPath is the search_path of all statements that fire no trigger.
const ownPath = "SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true)"

// errLacking takes back rows whose parent is missing.
var errLacking = errors.New("a parent is missing")

func (b *back) halve(ctx context.Context, tx pgx.Tx, places []int32, err error) error {
	var pgErr *pgconn.PgError
	switch {
	case !errors.As(err, &pgErr):
		return err
	case strings.HasPrefix(pgErr.Code, "SX") || fault.Judge(err).Lock() || strings.HasPrefix(pgErr.Code, "57") || strings.HasPrefix(pgErr.Code, "53"):
		return err
	case pgErr.Code == "42501":
		return err
	case len(places) == 1, strings.HasPrefix(pgErr.Code, "42"):
		// What is wrong with the table is wrong with all of its rows.
		reason := pgErr.Message
		if pgErr.Detail != "" {
			reason += ": " + pgErr.Detail
		}
		b.reasons[reason] = append(b.reasons[reason], places...)
		return nil
	}
	if err := b.restore(ctx, tx, places[:len(places)/2]); err != nil {
		return err
	}
	return b.restore(ctx, tx, places[len(places)/2:])
}

// look finds rows that refer to a row which is not there.
func (b *back) look(ctx context.Context, tx pgx.Tx, places []int32) ([]int32, string, error) {
	for _, check := range b.checks {
		rows, _ := tx.Query(ctx, check.sql, append([]any{b.ID, b.Number, b.mask(places)}, check.args...)...)
		lacking, err := pgx.CollectRows(rows, pgx.RowTo[int32])
		if err != nil {
			return nil, "", fmt.Errorf("look for the other parents: %w", err)
		}
		if len(lacking) > 0 {
			return lacking, check.what, nil
		}
	}
	return nil, "", nil
}

// statement puts the rows at the places $3 back.
func (b *back) statement() string {
	const at = "($3::pg_catalog.bool[])[r.sexton_n]"
	var names, values []string
	if len(b.Changed) > 0 {
		return b.giveBack(at)
	}
	for column := range b.Columns {
		if name, kind := b.shape.present(&b.layout, column); name != "" {
			names, values = append(names, pgcatalog.Quote(name)), append(values, b.value(column, kind))
		}
	}
	return fmt.Sprintf("INSERT INTO %s (%s) OVERRIDING SYSTEM VALUE SELECT %s FROM %s WHERE %s",
		b.shape.Name, strings.Join(names, ", "), strings.Join(values, ", "), b.rows(), at)
}

// giveBack gives rows their former values where nothing else has been written since.
func (b *back) giveBack(at string) string {
	var set, terms []string
	for _, field := range b.Fields {
		name, kind := b.shape.present(&b.layout, b.column(field))
		if name == "" {
			return "SELECT NULL::pg_catalog.int4 WHERE false AND $1::pg_catalog.int8 IS NULL AND $2::pg_catalog.int8 IS NULL AND $3::pg_catalog.bool[] IS NULL"
		}
		value, own := b.value(b.column(field), kind), "child."+pgcatalog.Quote(name)
		if slices.Contains(b.Changed, field) {
			set = append(set, pgcatalog.Quote(name)+" = "+value)
			if b.Written == nil {
				terms = append(terms, "pg_catalog.num_nonnulls("+own+") OPERATOR(pg_catalog.=) 0")
			} else {
				terms = append(terms, "pg_catalog.format('%s', "+own+") OPERATOR(pg_catalog.=) "+pgcatalog.Literal(*b.Written))
			}
			continue
		}
		if slices.Contains(b.KeyCols, field) {
			terms = append(terms, b.shape.own[name].Equal(own, value))
		}
	}
	return fmt.Sprintf("UPDATE %s AS child SET %s FROM %s WHERE %s AND %s RETURNING r.sexton_n",
		b.shape.Name, strings.Join(set, ", "), b.rows(), strings.Join(terms, " AND "), at)
}
