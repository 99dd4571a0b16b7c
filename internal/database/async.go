package database

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"sexton/internal/dbsqlc"
)

// A worker writes a dozen rows for each run: the job, its fetch and its end, a lease, a
// fence, and a row of the history. Most of the latency of a wake-up would be the flush to
// disk after each of these commits. So these writes use connections with asynchronous
// commit.
//
// Asynchronous commit is safe with a single database. The WAL keeps the order of commits,
// so lease and fence precede every durable batch under their token. A crash of the server
// loses the last commits before the crash, and ends every connection and so every run.
// The consequence depends on the lost commit:
//
//   - The insertion of a job: the row that the job was inserted for is still due. After
//     it has reconnected, the subscription queries for due rows and inserts another job.
//   - The fetch of a job: the job is available again and runs a second time. The second
//     run finds that the first run still has the lease or has raised the fence.
//   - The end of a job: the job counts as running on this worker. The worker's heartbeat
//     returns jobs that no goroutine works on to the queue.
//   - A lease or a fence: all batches under its token are lost, too. The token is granted
//     a second time. Its first holder can neither renew nor release the lease of the
//     second holder. On a connection that is younger than its lease, the first holder
//     calls Lease.Confirm before its first batch.
//   - The release of a lease: the lease's row names the former holder again. That process
//     takes the lease over, because it knows which of its attempts have ended. Other
//     processes wait until it does, or until the lease expires.
//   - The end of a run that changed nothing: a later run of its kind closes it. The
//     commits that end other runs wait for the disk, so no commit before them is lost.
//   - A tick: its job is lost with it, because one transaction inserts both. The next
//     leader, or the next check of this one, inserts the job again.
//
// With several databases, two of them may be on different servers, or move there while
// the worker runs. A crash of one server could then grant a token twice while a batch
// under it survives on the other. So all commits wait for the disk. All commits also wait
// behind a transaction pooler, whose connections outlive a crash. Pauses, cancellations
// and all other changes that an operator gets an answer for use Pool, and always wait.

// Async returns the pool with asynchronous commit if [ForWork] has created one for a
// worker with a single database, and otherwise Pool. A batch sets synchronous_commit
// itself.
func (d Database) Async() *pgxpool.Pool {
	if d.async != nil {
		return d.async
	}
	return d.Pool
}

// AsyncQueries returns the generated queries on the pool of Async.
func (d Database) AsyncQueries() *dbsqlc.Queries { return d.Names.Queries(d.Async()) }

// warm is the number of connections that a worker always keeps open. Their prepared
// statements save four round trips of a wake-up.
const warm = 2

// ForWork replaces the pools of a worker's databases by pools that always keep some
// connections open. A single database without a pooler instead gets a second such pool
// with asynchronous commit, which Async returns.
func ForWork(ctx context.Context, databases []Database) error {
	for i := range databases {
		d := &databases[i]
		settings := d.Pool.Config()
		settings.MinConns = max(settings.MinConns, min(warm, settings.MaxConns))
		async := false
		if len(databases) == 1 && !d.Pooled() {
			var wait string
			err := d.Pool.QueryRow(ctx, "SELECT pg_catalog.current_setting('synchronous_commit')").Scan(&wait)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if async = err == nil; async {
				// The settings are start-up parameters instead of SET statements. After a
				// SET, an undetected pooler could pass the changed session to the
				// application. A pooler refuses or drops start-up parameters.
				settings.ConnConfig.RuntimeParams["synchronous_commit"] = "off"
				// The SQL function commit_mode reads this setting.
				settings.ConnConfig.RuntimeParams["sexton.synchronous_commit"] = wait
			}
		}
		pool, err := pgxpool.NewWithConfig(ctx, settings)
		if err != nil {
			return fmt.Errorf("create pool for database %s: %w", d.Name, err)
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
