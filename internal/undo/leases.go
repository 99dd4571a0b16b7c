package undo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/database"
	"sexton/internal/drain/dml"
	"sexton/internal/lease"
	"sexton/internal/problem"
)

const (
	// takeOver is the number of tries after which acquire ends the lease of a worker.
	takeOver = 3
	// pause is the wait between two tries. The worker's pass may end in that time.
	pause = 100 * time.Millisecond
)

// Holder is the prefix of the lease-holder names of processes that undo or forget a
// deletion. Other processes do not take over such a lease. It expires when its holder
// stops renewing it.
const Holder = lease.UndoHolder

// ErrBusy reports that another process is undoing or forgetting a deletion.
var ErrBusy = errors.New("another process is undoing or forgetting a deletion; try again when it or its lease has ended")

// withLeases runs do under the leases of all queues, so that no worker continues a
// deletion while do is running. If a worker holds a lease, withLeases ends that lease,
// and the worker's next batch fails. If another undo holds it, withLeases returns
// ErrBusy.
func (e *Engine) withLeases(ctx context.Context, do func() error) (err error) {
	defer func() {
		for _, granted := range e.leases {
			err = errors.Join(err, granted.Release(context.WithoutCancel(ctx)))
		}
		e.leases = nil
	}()
	for _, queue := range e.Databases {
		if err := e.acquire(ctx, e.Key(queue.Name)); err != nil {
			return err
		}
	}
	if err := e.point("held"); err != nil {
		return err
	}
	return do()
}

// acquire acquires one lease, and ends the lease of a worker that holds it.
func (e *Engine) acquire(ctx context.Context, key string) error {
	for try := 0; ; try++ {
		granted, err := e.Leases.Acquire(ctx, key, lease.UndoTTL, e.Databases...)
		if err == nil {
			e.leases, e.renewed = append(e.leases, granted), time.Now()
			return nil
		}
		held, is := errors.AsType[*lease.HeldError](err)
		switch {
		case !is || try >= 2*takeOver:
			return err //nolint:wrapcheck // It names the lease.
		case held.ByUndo():
			return fmt.Errorf("%w: %w", ErrBusy, err)
		case try >= takeOver:
			jobs := e.Leases.Jobs
			if _, err := jobs.Pool.Exec(ctx, jobs.Names.Render(text("end_lease")), key, Holder); err != nil {
				return fmt.Errorf("take over lease %s: %w", key, err)
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause): // If the context has ended, the next try returns its error.
		}
	}
}

// renew renews the held leases if a quarter of their duration has passed.
func (e *Engine) renew(ctx context.Context) error {
	if len(e.leases) == 0 || time.Since(e.renewed) < lease.UndoTTL/4 {
		return nil
	}
	for _, held := range e.leases {
		if err := held.Renew(ctx); err != nil {
			return err //nolint:wrapcheck // It names the lease.
		}
	}
	e.renewed = time.Now()
	return nil
}

// fenced runs do in a transaction under the lease of the database's queue. If silent is
// set, the application's triggers do not fire in the transaction.
func (e *Engine) fenced(ctx context.Context, db database.Database, silent bool, do func(tx pgx.Tx) error) error {
	if err := e.renew(ctx); err != nil {
		return err
	}
	own := e.leases[slices.IndexFunc(e.Databases, func(queue database.Database) bool { return queue.Name == db.Name })]
	return database.Write(ctx, db.Pool, func(tx pgx.Tx) error {
		if err := own.Confirm(ctx, tx.Conn()); err != nil {
			return err //nolint:wrapcheck // It names the lease.
		}
		begin := &pgx.Batch{}
		begin.Queue(db.Names.Render(text("begin")), own.Key(), own.Token(), e.StatementTimeout.Milliseconds(),
			e.LockTimeout.Milliseconds(), true)
		begin.Queue("SELECT " + dml.EnlargeMemory)
		begin.Queue("SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true), pg_catalog.set_config('quote_all_identifiers', 'off', true)")
		if silent {
			begin.Queue("SELECT pg_catalog.set_config('session_replication_role', 'replica', true)")
		}
		if err := tx.SendBatch(ctx, begin).Close(); err != nil {
			return fmt.Errorf("begin: %w", err)
		}
		return do(tx)
	})
}

// tombstoneKeys returns the keys of a group's rows in the form that tombstones have. It
// returns no keys if the table is not tracked.
func (e *Engine) tombstoneKeys(ctx context.Context, tx pgx.Tx, g *group, t *table,
	rows []int32,
) (keys []string, _ error) {
	if t == nil || g.changes() || len(rows) == 0 {
		return nil, nil
	}
	for _, parent := range e.Parents[g.on.Name] {
		if parent.OID != t.OID {
			continue
		}
		var at []int
		var names []string
		for _, column := range parent.KeyColumns {
			former := t.layoutColumn(&g.layout, column)
			if former < 0 {
				return nil, nil
			}
			at, names = append(at, former), append(names, g.Columns[former])
		}
		columns := dml.Qualified("r", names)
		sql := fmt.Sprintf("SELECT pg_catalog.array_agg(%s) FROM %s WHERE %s AND pg_catalog.num_nulls(%s) OPERATOR(pg_catalog.=) 0",
			keyText(columns), g.from(at...), inMask, strings.Join(columns, ", "))
		err := tx.QueryRow(ctx, sql, g.args(rows)...).Scan(&keys)
		return keys, problem.Doing(err, "read keys of %s", g.Name)
	}
	return nil, nil
}

// keyText returns an SQL expression for a key in the form that tombstones have.
func keyText(values []string) string {
	if len(values) == 1 {
		return values[0] + "::pg_catalog.text"
	}
	return "ARRAY[" + strings.Join(values, "::pg_catalog.text, ") + "::pg_catalog.text]::pg_catalog.text"
}
