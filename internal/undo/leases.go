package undo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/database"
	"sexton/internal/drain"
	"sexton/internal/lease"
	"sexton/internal/problem"
)

// acquire takes the leases of all queues. A worker that has one loses it: its next batch is refused. Another undo keeps it.
func (e *Engine) acquire(ctx context.Context) error {
	for _, queue := range e.Databases {
		for try := 0; ; try++ {
			granted, err := e.Leases.Acquire(ctx, e.Key(queue.Name), lease.UndoTTL, e.Databases...)
			if err == nil {
				e.leases, e.renewed = append(e.leases, granted), time.Now()
				break
			}
			held, is := errors.AsType[*lease.HeldError](err)
			if is && held.ByUndo() {
				is, err = false, fmt.Errorf("%w: %w", ErrBusy, err)
			}
			if is && try < 2*takeOver {
				err = nil
				if jobs := e.Leases.Jobs; try >= takeOver {
					_, err = jobs.Pool.Exec(ctx, jobs.Names.Render(text("yield")), e.Key(queue.Name), Holder)
					err = problem.Doing(err, "take over lease %s", e.Key(queue.Name))
				}
			}
			if err != nil {
				return errors.Join(err, e.release(context.WithoutCancel(ctx)))
			}
			select {
			case <-ctx.Done():
			case <-time.After(pause): // The next try finds an ended context.
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

// keep renews the leases now and then. Their holder may work for hours, in transactions that end long before a lease does.
func (e *Engine) keep(ctx context.Context) error {
	if time.Since(e.renewed) < lease.UndoTTL/4 {
		return nil
	}
	for _, held := range e.leases {
		if err := held.Renew(ctx); err != nil {
			return err
		}
	}
	e.renewed = time.Now()
	return nil
}

// fenced runs do in a transaction under the lease of the database's queue. With a single database its commit need not wait for the disk: a crash
// takes rows, marks and tombstones back together, and flush ends the work.
func (e *Engine) fenced(ctx context.Context, db database.Database, durable bool, do func(tx pgx.Tx) error) error {
	if err := e.keep(ctx); err != nil {
		return err
	}
	own := e.leases[slices.IndexFunc(e.Databases, func(queue database.Database) bool { return queue.Name == db.Name })]
	ctx, cancel := own.Context(ctx)
	defer cancel()
	return database.Write(ctx, db.Pool, func(tx pgx.Tx) error {
		if err := own.Confirm(ctx, tx.Conn()); err != nil {
			return err
		}
		begin := &pgx.Batch{}
		begin.Queue(db.Names.Render(text("begin")), own.Key(), own.Token(), e.StatementTimeout.Milliseconds(), e.LockTimeout.Milliseconds(),
			durable || len(e.Databases) > 1)
		begin.Queue(text("settings"), e.silent[db.Name], e.StatementTimeout.Milliseconds())
		begin.Queue("SELECT " + drain.Room)
		begin.Queue("SET CONSTRAINTS ALL IMMEDIATE")
		if err := tx.SendBatch(ctx, begin).Close(); err != nil {
			return fmt.Errorf("begin: %w", err)
		}
		return do(tx)
	})
}

// flush has the disk take what was committed before. The transaction writes, as it locks its fence.
func (e *Engine) flush(ctx context.Context) error {
	return e.fenced(ctx, e.Databases[0], true, func(pgx.Tx) error { return nil })
}
