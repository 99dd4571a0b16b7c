package database

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"sexton/internal/dbsqlc"
)

// A worker writes a dozen rows about each piece of work: a job, its fetch and its end, a lease, a fence, a run. Waiting for the disk after
// each of them is most of what a wake-up would cost, so they go through connections whose commits do not wait (asynchronous commit).
//
// That is safe on one server. Its log keeps the order of commits, so lease and fence are in it before any durable batch under their token.
// What a crash of the server loses are the last commits before it, and it ends every connection, and with it every pass:
//
//   - A job: its row of work is still due, and the lane that looks after it has connected again inserts another one.
//   - A fetch: the job is available again. Its second run finds the lease, or the fence.
//   - The end of a job: it counts as running by this worker, whose heartbeat gives back jobs that no part of the worker runs.
//   - A lease or a fence: with the batches under its token. The token is given a second time, to the only holder there is.
//   - The end of a run that changed nothing: a later run under its lease closes it. Other ends wait, and all that came before with them.
//   - A tick: its row is written before its job, so rarely it is noted without a job; the lane's look finds what is due.
//
// With databases on several servers a crash of one could give a token twice, while a batch under it lives on the other: there all commits wait.
// Pauses, cancellations and whatever else an operator was told go through Pool, and wait everywhere.

// Async returns connections whose commits do not wait for the disk, in a worker on one server; elsewhere those of Pool. A batch says itself
// whether it waits.
func (d Database) Async() *pgxpool.Pool {
	if d.async != nil {
		return d.async
	}
	return d.Pool
}

// AsyncQueries are Queries on Async.
func (d Database) AsyncQueries() *dbsqlc.Queries { return d.Names.Queries(d.Async()) }

// warm are the connections that a worker keeps for its work at any time: what they have prepared is worth four round trips of a wake-up.
const warm = 2

// ForWork gives a worker's databases, all that it has, the connections that it keeps.
func ForWork(ctx context.Context, databases []Database) error {
	together, err := onOneServer(ctx, databases)
	if err != nil {
		return err
	}
	for i := range databases {
		d := &databases[i]
		settings := d.Pool.Config()
		settings.MinConns = max(settings.MinConns, min(warm, settings.MaxConns))
		direct := !pooled(settings.ConnConfig, "") && d.Sessions == d.Pool
		if direct && together {
			look := settings.AfterConnect
			settings.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
				if err := look(ctx, conn); err != nil {
					return err
				}
				_, err := conn.Exec(ctx, asyncSQL)
				return err //nolint:wrapcheck // the pool words it
			}
		}
		pool, err := pgxpool.NewWithConfig(ctx, settings)
		if err != nil {
			return fmt.Errorf("make pool for database %s: %w", d.Name, err)
		}
		if direct {
			d.async, d.Sessions = pool, pool
			continue
		}
		d.Pool.Close()
		d.Pool = pool
	}
	return nil
}

// asyncSQL keeps what the session would have had for batches that wait, see begin_batch.
const asyncSQL = `
SELECT
    pg_catalog.set_config('sexton.synchronous_commit', pg_catalog.current_setting('synchronous_commit'), false),
    pg_catalog.set_config('synchronous_commit', 'off', false)`

// onOneServer reports whether all databases are on one running server. One that cannot be reached may be anywhere. Two servers may have been
// copied from each other, and have one identifier; they have not started in the same microsecond.
func onOneServer(ctx context.Context, databases []Database) (bool, error) {
	type server struct {
		identifier int64
		started    time.Time
	}
	var first server
	for i, d := range databases {
		if len(databases) == 1 {
			return true, nil
		}
		var each server
		const sql = "SELECT control.system_identifier, pg_catalog.pg_postmaster_start_time() FROM pg_catalog.pg_control_system() AS control"
		switch err := d.Pool.QueryRow(ctx, sql).Scan(&each.identifier, &each.started); {
		case ctx.Err() != nil:
			return false, ctx.Err()
		case err != nil:
			return false, nil //nolint:nilerr // Its commits wait, as do all others.
		case i == 0:
			first = each
		case each.identifier != first.identifier || !each.started.Equal(first.started):
			return false, nil
		}
	}
	return true, nil
}
