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
	// reachTimeout bounds the dialling of another database than the pass's own, and its first answer: what does not depend on
	// it must not wait.
	reachTimeout = 2 * time.Second
	// reachAgain is the pause between two tries to reach a database.
	reachAgain = 5 * time.Second
	// fenceTimeout bounds the raising of a fence there, which may have to end an earlier holder's transaction.
	fenceTimeout = 5 * time.Second
)

// outages are the databases that could not be reached lately. The zero value is ready to use.
type outages struct {
	mu    sync.Mutex
	known map[string]outage
}

type outage struct {
	since, tried time.Time
	err          error
}

// of returns a database's outage, and whether it is too early to try again.
func (o *outages) of(name string) (found outage, early bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	found, known := o.known[name]
	return found, known && time.Since(found.tried) < reachAgain
}

// note remembers how a try ended, and reports whether that is news.
func (o *outages) note(name string, err error) (news bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	found, known := o.known[name]
	if err == nil {
		delete(o.known, name)
		return known
	}
	if o.known == nil {
		o.known = map[string]outage{}
	}
	now := time.Now()
	if !known {
		found.since = now
	}
	found.tried, found.err = now, err
	o.known[name] = found
	return !known
}

// pass is one pass for a database on one connection, with connections to the databases beside it, dialled when they are first needed.
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

// reach returns a connection to a database that is not the pass's own. A failure is remembered for the pass, and for a
// while for all of them.
func (p *pass) reach(ctx context.Context, db database.Database) (*pgxpool.Conn, error) {
	if conn, open := p.conns[db.Name]; open {
		return conn, nil
	}
	if err, failed := p.errs[db.Name]; failed {
		return nil, err
	}
	if known, early := p.Memory.outages.of(db.Name); early {
		p.errs[db.Name] = known.err
		return nil, known.err
	}
	dialling, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	conn, err := db.Pool.Acquire(dialling)
	if err == nil {
		// The pool asks no connection that was in use a moment ago, and one that is stalled would hold up the pass until
		// its lease ends.
		if err = conn.Ping(dialling); err != nil {
			conn.Release()
		}
	}
	if err != nil {
		return nil, p.markDown(ctx, db, db.Unreachable(err))
	}
	p.conns[db.Name] = conn
	if p.Memory.outages.note(db.Name, nil) {
		p.Logger.InfoContext(ctx, "database can be reached again", "kind", Kind, "database", db.Name)
	}
	return conn, nil
}

// markDown notes that a database cannot be reached, or not be written to, and returns why.
func (p *pass) markDown(ctx context.Context, db database.Database, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if conn, open := p.conns[db.Name]; open {
		conn.Release()
		delete(p.conns, db.Name)
	}
	p.errs[db.Name] = err
	if p.Memory.outages.note(db.Name, err) {
		p.Logger.WarnContext(ctx, "database cannot be reached: what depends on it waits",
			"kind", Kind, "database", db.Name, "needed_by", p.db.Name, "error", err)
	}
	return err
}

// everywhere calls do for the pass's database, and for the others that its parents have children in and that can be reached. Another database
// that fails is lost.
func (p *pass) everywhere(ctx context.Context, parents []*loosefk.Parent, do func(db database.Database, conn *pgxpool.Conn) error) error {
	if err := do(p.db, p.conn); err != nil {
		return err
	}
	for _, db := range p.needed(parents) {
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

// needed are the databases beside their own in which parents have children.
func (w *Work) needed(parents []*loosefk.Parent) []database.Database {
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

// open opens a session on each database that parents need beside their own. The fence there is raised first: no session
// may write behind the back of an earlier holder of the lease.
func (p *pass) open(ctx context.Context, granted *lease.Lease, parents []*loosefk.Parent, limits batch.Limits) (map[string]loosefk.Remote, error) {
	found := map[string]loosefk.Remote{}
	for _, db := range p.needed(parents) {
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
			down, _ := p.Memory.outages.of(db.Name)
			found[db.Name] = loosefk.Remote{Err: err, Down: time.Since(down.since)}
		default:
			found[db.Name] = loosefk.Remote{Session: &batch.Session{Conn: conn.Conn(), Names: db.Names, Fence: granted, Limits: limits}}
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
