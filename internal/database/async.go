package database

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"sexton/internal/dbsqlc"
)

// A worker writes a dozen rows about each piece of work: a job, its fetch and its end, a
// lease, a fence, a run. Waiting for the disk after each of them is most of what a
// wake-up would cost, so they go through connections whose commits do not wait
// (asynchronous commit).
//
// That is safe on one server. Its log keeps the order of commits, so lease and fence are
// in it before any durable batch under their token. What a crash of the server loses are
// the last commits before it, and it ends every connection, and with it every pass:
//
//   - A job: its row of work is still due, and the subscription that looks after it has
//     connected again inserts another one.
//   - A fetch: the job is available again. Its second run finds the lease, or the fence.
//   - The end of a job: it counts as running by this worker, whose heartbeat gives back
//     jobs that no part of the worker runs.
//   - A lease or a fence: with all batches under its token. The token is given a second
//     time. Its first holder can neither renew nor release what another one holds, and on
//     a connection that is younger than its lease it asks before its first batch whether
//     it still has it.
//   - The release of a lease: its row says again who had it. That process takes it over,
//     as it knows which of its attempts are over; others wait for that, or for the
//     lease's end.
//   - The end of a run that changed nothing: a later run of its kind closes it. All other
//     ends wait, and with them what came before.
//   - A tick: with its job, as one transaction has both. The next leader, or the next
//     look of this one, inserts the job again.
//
// With databases on several servers a crash of one could give a token twice, while a
// batch under it lives on the other: there all commits wait, also where a database moves
// while the worker runs. So they do where one is behind a transaction pooler, whose
// connections outlive a crash. Pauses, cancellations and whatever else an operator was
// told go through Pool, and wait everywhere.

// Async returns connections whose commits do not wait for the disk, in a worker on one
// server, and otherwise those of Pool. A batch says itself whether it waits.
func (d Database) Async() *pgxpool.Pool {
	if d.async != nil {
		return d.async
	}
	return d.Pool
}

// AsyncQueries are Queries on Async.
func (d Database) AsyncQueries() *dbsqlc.Queries { return d.Names.Queries(d.Async()) }

// warm are the connections that a worker keeps for its work at any time: what they have
// prepared is worth four round trips of a wake-up.
const warm = 2

// ForWork gives a worker's databases, all that it has, the connections that it keeps. To
// do so again changes nothing.
func ForWork(ctx context.Context, databases []Database) error {
	waits, on, err := onOneServer(ctx, databases)
	if err != nil {
		return err
	}
	all := &servers{seen: on, pools: make([]*pgxpool.Pool, len(databases))}
	for i := range databases {
		d := &databases[i]
		if d.async != nil {
			continue // They have worked before.
		}
		settings := d.Pool.Config()
		settings.MinConns = max(settings.MinConns, min(warm, settings.MaxConns))
		async := waits != nil
		if async {
			// Not by SET: a pooler that looks like a server would hand such a session on
			// to the application. It refuses these, or drops them.
			settings.ConnConfig.RuntimeParams["synchronous_commit"] = "off"
			settings.ConnConfig.RuntimeParams["sexton.synchronous_commit"] = waits[i]
			if len(databases) > 1 {
				all.watch(i, settings)
			}
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
			all.add(i, pool)
			continue
		}
		d.Pool.Close()
		d.Pool = pool
	}
	return nil
}

// server is a running one. Two servers may have been copied from each other, and have one
// identifier; they have not started in the same microsecond.
type server struct {
	identifier int64
	started    time.Time
}

const serverSQL = `SELECT control.system_identifier, pg_catalog.pg_postmaster_start_time() FROM pg_catalog.pg_control_system() AS control`

func (s server) is(other server) bool {
	return s.identifier == other.identifier && s.started.Equal(other.started)
}

// onOneServer returns each database's synchronous_commit, for the batches that wait (see
// begin_batch), and its server; nil where they are not all on one running server without
// a pooler. One that cannot be reached may be anywhere.
func onOneServer(ctx context.Context, databases []Database) (waits []string, on []server, err error) {
	if slices.ContainsFunc(databases, Database.Pooled) {
		return nil, nil, nil
	}
	for _, d := range databases {
		var each server
		var wait string
		err := d.Pool.QueryRow(ctx, serverSQL).Scan(&each.identifier, &each.started)
		if err == nil {
			err = d.Pool.QueryRow(ctx, "SELECT pg_catalog.current_setting('synchronous_commit')").Scan(&wait)
		}
		switch {
		case ctx.Err() != nil:
			return nil, nil, ctx.Err()
		case err != nil:
			return nil, nil, nil //nolint:nilerr // Its commits wait, as do all others.
		case len(on) > 0 && !each.is(on[0]):
			return nil, nil, nil
		}
		waits, on = append(waits, wait), append(on, each)
	}
	return waits, on, nil
}

// servers are the ones that the databases of a worker are on. Each new connection says
// where its database is now: one that moves, as in a failover, loses its connections. As
// soon as two databases are apart no new connection commits asynchronously, and the old
// ones of all are closed; when all are on one server again, as after its restart, that is
// taken back.
type servers struct {
	mu    sync.Mutex
	seen  []server
	pools []*pgxpool.Pool
}

var errMoved = errors.New("the databases are on several servers now: this connection would commit asynchronously")

// watch has each connection of a pool look.
func (s *servers) watch(at int, settings *pgxpool.Config) {
	connected := settings.AfterConnect
	settings.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
		if s.apart() {
			delete(c.RuntimeParams, "synchronous_commit")
			delete(c.RuntimeParams, "sexton.synchronous_commit")
		}
		return nil
	}
	settings.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		if err := connected(ctx, conn); err != nil {
			return err
		}
		var here server
		if err := conn.QueryRow(ctx, serverSQL).Scan(&here.identifier, &here.started); err != nil {
			return fmt.Errorf("look on which server the database is: %w", err)
		}
		_, async := conn.Config().RuntimeParams["synchronous_commit"]
		if s.see(at, here); async && s.apart() {
			return errMoved
		}
		return nil
	}
}

func (s *servers) add(at int, pool *pgxpool.Pool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pools[at] = pool
}

func (s *servers) apart() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.differ()
}

func (s *servers) differ() bool {
	return slices.ContainsFunc(s.seen, func(other server) bool { return !other.is(s.seen[0]) })
}

func (s *servers) see(at int, here server) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.differ()
	if s.seen[at] = here; s.differ() == before {
		return
	}
	for _, pool := range s.pools {
		if pool != nil {
			pool.Reset()
		}
	}
}
