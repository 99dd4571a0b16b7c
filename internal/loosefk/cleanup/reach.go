package cleanup

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"sexton/internal/batch"
	"sexton/internal/database"
	"sexton/internal/lease"
	"sexton/internal/loosefk"
)

const (
	// reachTimeout limits the time to connect to another database and to get its first
	// response. Tombstones that do not depend on that database must not wait.
	reachTimeout = 2 * time.Second
	// reachAgain is the pause before any pass of the process tries again to reach a
	// database that could not be reached.
	reachAgain = 5 * time.Second
	// fenceTimeout limits the time to write the fencing token into another database. This
	// may include ending the transaction of an earlier lease holder.
	fenceTimeout = 5 * time.Second
)

// outages holds the databases that could not be reached recently. The zero value is ready
// to use.
type outages struct {
	mu    sync.Mutex
	known map[string]outage
}

type outage struct {
	tried time.Time
	err   error
}

// lookup returns the outage of a database, and whether it is too early to try again.
func (o *outages) lookup(name string) (found outage, early bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	found, known := o.known[name]
	return found, known && time.Since(found.tried) < reachAgain
}

// record stores the result of an attempt to reach a database. It returns true if the
// result is a failure after a success, or the reverse.
func (o *outages) record(name string, err error) (changed bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, known := o.known[name]
	if err == nil {
		delete(o.known, name)
		return known
	}
	if o.known == nil {
		o.known = map[string]outage{}
	}
	o.known[name] = outage{time.Now(), err}
	return !known
}

// pass is one pass for a database over one connection. It opens connections to other
// databases when they are first needed.
type pass struct {
	*Work

	db    database.Database
	conn  *pgxpool.Conn
	log   *slog.Logger
	conns map[string]*pgxpool.Conn
	errs  map[string]error
}

func (p *pass) release() {
	for _, conn := range p.conns {
		conn.Release()
	}
	p.conn.Release()
}

// reach returns a connection to another database. After a failure, this pass does not try
// again, and other passes only after reachAgain.
func (p *pass) reach(ctx context.Context, db database.Database) (*pgxpool.Conn, error) {
	if conn, open := p.conns[db.Name]; open {
		return conn, nil
	}
	if err, failed := p.errs[db.Name]; failed {
		return nil, err
	}
	if known, early := p.Memory.outages.lookup(db.Name); early {
		p.errs[db.Name] = known.err
		return nil, known.err
	}
	dialing, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	conn, err := db.Pool.Acquire(dialing)
	if err == nil {
		// The pool does not check connections that were used recently. A stalled
		// connection would block the pass until its lease ends.
		if err = conn.Ping(dialing); err != nil {
			conn.Release()
		}
	}
	if err != nil {
		return nil, p.markDown(ctx, db, db.Unreachable(err))
	}
	p.conns[db.Name] = conn
	if p.Memory.outages.record(db.Name, nil) {
		p.Logger.InfoContext(ctx, "database_reachable", "kind", Kind, "database", db.Name)
	}
	return conn, nil
}

// markDown closes the connection to a database that cannot be reached or written to, and
// records and returns the error.
func (p *pass) markDown(ctx context.Context, db database.Database, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if conn, open := p.conns[db.Name]; open {
		conn.Release()
		delete(p.conns, db.Name)
	}
	p.errs[db.Name] = err
	if p.Memory.outages.record(db.Name, err) {
		p.Logger.WarnContext(ctx, "database_unreachable",
			"kind", Kind, "database", db.Name, "needed_by", p.db.Name, "error", err)
	}
	return err
}

// forEachDatabase calls do for the pass's database, and for each other database with
// children of the parents, if it can be reached. If do fails for another database, that
// database is marked as down.
func (p *pass) forEachDatabase(ctx context.Context, parents []*loosefk.Parent,
	do func(db database.Database, conn *pgxpool.Conn) error,
) error {
	if err := do(p.db, p.conn); err != nil {
		return err
	}
	for _, db := range p.otherDatabases(parents) {
		conn, err := p.reach(ctx, db)
		if err != nil {
			continue
		}
		if err := do(db, conn); err != nil {
			_ = p.markDown(ctx, db, db.Unreachable(err))
		}
	}
	return nil
}

// otherDatabases returns the other databases in which parents have children.
func (w *Work) otherDatabases(parents []*loosefk.Parent) []database.Database {
	var found []database.Database
	for _, db := range w.Databases {
		for _, parent := range parents {
			if parent.Database != db.Name && parent.HasChildrenIn(db.Name) {
				found = append(found, db)
				break
			}
		}
	}
	return found
}

// open opens a session on each other database that parents need. It first writes the
// fencing token there, so that an earlier holder of the lease can no longer write.
func (p *pass) open(ctx context.Context, granted *lease.Lease, parents []*loosefk.Parent,
	limits batch.Limits,
) (map[string]loosefk.Remote, error) {
	found := map[string]loosefk.Remote{}
	for _, db := range p.otherDatabases(parents) {
		conn, err := p.reach(ctx, db)
		if err == nil {
			err = p.fence(ctx, granted, db)
		}
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case errors.Is(err, lease.ErrLost):
			return nil, err
		case err != nil:
			found[db.Name] = loosefk.Remote{Err: err}
		default:
			found[db.Name] = loosefk.Remote{Session: &batch.Session{
				Conn: conn.Conn(), Names: db.Names, Fence: granted,
				Limits: limits,
			}}
		}
	}
	return found, nil
}

func (p *pass) fence(ctx context.Context, granted *lease.Lease, db database.Database) error {
	raising, cancel := context.WithTimeout(ctx, fenceTimeout)
	defer cancel()
	err := granted.Raise(raising, db)
	if err == nil || errors.Is(err, lease.ErrLost) {
		return err
	}
	return p.markDown(ctx, db, err)
}
