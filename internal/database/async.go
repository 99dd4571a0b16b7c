package database

import (
	"context"
	"fmt"
	"time"

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
//   - A lease or a fence: with all batches under its token. The token is given a second time. Its first holder can neither renew nor release what
//     another one holds, and on a connection that is younger than its lease it asks before its first batch whether it still has it.
//   - The end of a run that changed nothing: a later run of its kind closes it. All other ends wait, and with them what came before.
//   - A tick: with its job, as one transaction has both. The next leader, or the next look of this one, inserts the job again.
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

// ForWork gives a worker's databases, all that it has, the connections that it keeps. To do so again changes nothing.
func ForWork(ctx context.Context, databases []Database) error {
	waits, err := onOneServer(ctx, databases)
	if err != nil {
		return err
	}
	for i := range databases {
		d := &databases[i]
		if d.async != nil {
			continue // They have worked before.
		}
		settings := d.Pool.Config()
		settings.MinConns = max(settings.MinConns, min(warm, settings.MaxConns))
		async := waits != nil && !d.pooled
		if async {
			// Not by SET: a pooler that looks like a server would hand such a session on to the application. It refuses these, or drops them.
			settings.ConnConfig.RuntimeParams["synchronous_commit"] = "off"
			settings.ConnConfig.RuntimeParams["sexton.synchronous_commit"] = waits[i]
		}
		pool, err := pgxpool.NewWithConfig(ctx, settings)
		if err != nil {
			return fmt.Errorf("make pool for database %s: %w", d.Name, err)
		}
		if d.Sessions == d.Pool {
			d.Sessions = pool
		}
		if async {
			d.async = pool
			continue
		}
		d.Pool.Close()
		d.Pool = pool
	}
	return nil
}

// onOneServer returns each database's synchronous_commit, for the batches that wait (see begin_batch), or nil where they are not all on one
// running server. One that cannot be reached may be anywhere. Two servers may have been copied from each other, and have one identifier; they have
// not started in the same microsecond.
func onOneServer(ctx context.Context, databases []Database) (waits []string, err error) {
	type server struct {
		identifier int64
		started    time.Time
	}
	var first server
	for i, d := range databases {
		var each server
		var wait string
		const sql = `SELECT control.system_identifier, pg_catalog.pg_postmaster_start_time(), pg_catalog.current_setting('synchronous_commit')
			FROM pg_catalog.pg_control_system() AS control`
		switch err := d.Pool.QueryRow(ctx, sql).Scan(&each.identifier, &each.started, &wait); {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil:
			return nil, nil //nolint:nilerr // Its commits wait, as do all others.
		case i == 0:
			first = each
		case each.identifier != first.identifier || !each.started.Equal(first.started):
			return nil, nil
		}
		waits = append(waits, wait)
	}
	return waits, nil
}
