package drain

import (
	"context"
	"errors"
	"strings"
	"time"

	"sexton/internal/batch"
	"sexton/internal/drain/dml"
	"sexton/internal/lease"
	"sexton/internal/pace"
	"sexton/internal/pgcatalog"
)

const (
	// cutoffs limits the time of a direct statement or a piece to that number of targets.
	cutoffs = 5
	// shortestCutoff is the minimum timeout of a statement. On a busy server a shorter
	// time says nothing about its size.
	shortestCutoff = 100 * time.Millisecond
	// lockWait is the lock timeout while other work can be done.
	lockWait = 100 * time.Millisecond
	// edgesPerTarget limits the target of a direct transaction: one target per edge, up
	// to this number.
	edgesPerTarget = 5
	// remoteStall is how long a transaction in another database may take in addition to
	// the timeouts of its statements.
	remoteStall = 5 * time.Second
)

// session works on one chunk at a time, over one connection.
type session struct {
	*Pass

	on *batch.Session
	// first is set for the session that continues alone when Pass.solo is set.
	first bool
}

// work takes and drains chunks until there are none.
func (s *session) work(ctx context.Context) error {
	for {
		c, err := s.next(ctx)
		if c == nil {
			s.mu.Lock()
			s.alive--
			s.signal()
			s.mu.Unlock()
			return err
		}
		if s.awaitReplicas(ctx); s.ended() {
			s.giveBack(true, c)
		} else {
			err = s.clear(ctx, c)
		}
		s.mu.Lock()
		s.active--
		s.signal()
		s.mu.Unlock()
		if err != nil {
			return s.leavePass(err)
		}
	}
}

// leavePass removes the session from the pass. It drops errNoConnection while other
// sessions are alive.
func (s *session) leavePass(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.alive--; s.alive > 0 && errors.Is(err, errNoConnection) {
		return nil
	}
	return err
}

// run runs one transaction in the parents' database. It returns the number of rows that
// each statement affected.
func (s *session) run(ctx context.Context, limits batch.Limits, statements ...batch.Statement) (affected []int64, err error) {
	if s.othersActive.Load() {
		s.turn.Lock()
		defer s.turn.Unlock()
	}
	affected, err = s.on.RunWithin(ctx, limits, statements...)
	s.breathe(ctx, s.on.Took())
	return affected, err
}

// runIn runs one transaction in the database of an edge.
func (s *session) runIn(ctx context.Context, e *Edge, limits batch.Limits, statements ...batch.Statement) ([]int64, error) {
	if !e.remote() {
		return s.run(ctx, limits, statements...)
	}
	s.remoteMu.Lock()
	defer s.remoteMu.Unlock()
	remote := s.Remotes[e.Database]
	if remote == nil || remote.Session == nil {
		return nil, &batch.FaultError{Fault: s.away(e)}
	}
	limits.Durable = true
	calling, cancel := context.WithTimeout(ctx, time.Duration(len(statements))*limits.StatementTimeout+remoteStall)
	defer cancel()
	affected, err := remote.Session.RunWithin(calling, limits, statements...)
	if err != nil && ctx.Err() == nil && !errors.Is(err, lease.ErrLost) && !errors.Is(err, lease.ErrUnconfirmed) && batch.Judge(err).Verdict == batch.Fatal {
		s.lost(e.Database, err)
		return nil, &batch.FaultError{Fault: s.away(e)}
	}
	return affected, err
}

// took returns the duration of the last transaction in the database of an edge.
func (s *session) took(e *Edge) time.Duration {
	if e.remote() {
		s.remoteMu.Lock()
		defer s.remoteMu.Unlock()
	}
	if remote := s.remote(e); remote != nil {
		return remote.Took()
	}
	return s.on.Took()
}

// remote returns the session in the database of an edge, or nil. Another session of the pass
// may find at any time that it is lost.
func (p *Pass) remote(e *Edge) *batch.Session {
	p.mu.Lock()
	defer p.mu.Unlock()
	if remote := p.Remotes[e.Database]; remote != nil {
		return remote.Session
	}
	return nil
}

// away returns why the database of an edge cannot be used.
func (s *session) away(e *Edge) batch.Fault {
	f := batch.Fault{Table: e.Child.Label(), Message: "database " + e.Database + " cannot be reached", Verdict: batch.Unavailable}
	if remote := s.Remotes[e.Database]; remote != nil && remote.Err != nil {
		f.Message = batch.FirstLine(remote.Err, "database "+e.Database)
	}
	return f
}

// short returns limits with a statement timeout of at most the given time and short waits
// for locks.
func (s *session) short(timeout time.Duration) batch.Limits {
	limits := s.on.Limits
	limits.StatementTimeout = min(limits.StatementTimeout, max(timeout, shortestCutoff))
	limits.LockTimeout = min(limits.LockTimeout, lockWait)
	return limits
}

// blockedWait is the lock timeout while an edge is known to be locked.
const blockedWait = 5 * time.Millisecond

// blockedNow reports whether rows of the edge were locked a moment ago.
func (p *Pass) blockedNow(e *Edge) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return e.blocked.waits()
}

// directTarget returns the time that a direct transaction of the parent should take.
func (s *session) directTarget(p *Parent) time.Duration {
	return s.target() * time.Duration(max(1, min(len(p.Edges), edgesPerTarget)))
}

// direct changes the rows of edges in one transaction and one round trip. With complete
// it also removes the tombstones. It returns those removed and the number of changed
// rows.
func (s *session) direct(ctx context.Context, c *chunk, edges []*Edge, complete bool, limits batch.Limits) (Done, int64, error) {
	// The completion of a living parent needs a snapshot that is newer than the lock on the
	// parent: it must see the rows of a writer that had the lock before.
	limits.Repeatable = !c.parent.lives()
	var rows []int64
	done := Done{}
	var statements []batch.Statement
	var at []int // index of the last statement of each edge
	if c.recheck() && complete {
		statements = append(statements, c.parent.late(c, edges))
	}
	if c.parent.lives() {
		sql, args := c.parent.Lock(c.keys())
		statements = append(statements, batch.Statement{SQL: sql, Args: args})
	}
	s.mu.Lock()
	both, check := s.both, false
	for _, e := range c.parent.Edges {
		check = check || e.MayKeep || c.parent.shares(e)
	}
	edges = withDoubles(edges)
	s.mu.Unlock()
	rows = make([]int64, len(edges))
	first := len(statements)
	for i, e := range edges {
		if s.blockedNow(e) {
			limits.LockTimeout = min(limits.LockTimeout, blockedWait)
		}
		keys := e.keys(c)
		if keys.Keep != nil && !keys.Keep.Apart && !e.Updates() && !e.EmitsEvent {
			keys.Keep.Ahead = e.Leaf.OID
		}
		statements = append(statements, e.statements(s.on.Names, keys, &rows[i], func(keys dml.Keys) (string, []any) {
			return e.Direct(s.on.Names, e.Leaf, keys, both)
		})...)
		at = append(at, len(statements)-1)
	}
	if complete {
		statements = append(statements, s.Source.Complete(c.parent, c.tombstones, check, &done))
	}
	if len(statements) == 0 {
		return done, 0, nil
	}
	affected, err := s.run(ctx, limits, statements...)
	if err != nil {
		return nil, 0, blame(err, edges, first, at)
	}
	var sum int64
	for i, e := range edges {
		if !e.counts(e.keys(c)) {
			rows[i] = affected[at[i]]
		}
		sum += rows[i]
		s.count(ctx, c, e, rows[i])
	}
	return done, sum, nil
}

// withDoubles inserts Edge.Double before each edge that has met duplicates.
func withDoubles(edges []*Edge) []*Edge {
	var all []*Edge
	for _, e := range edges {
		if e.doubled {
			all = append(all, e.Double)
		}
		all = append(all, e)
	}
	return all
}

// edgeError is the error of a statement on one edge.
type edgeError struct {
	error

	edge *Edge
}

func (e *edgeError) Unwrap() error { return e.error }

// blame adds the edge whose statement failed to err. at[i] is the last statement of edge
// i, and first is the first statement of the first edge.
func blame(err error, edges []*Edge, first int, at []int) error {
	failed, ok := errors.AsType[*batch.StatementError](err)
	if !ok || failed.Index < first {
		return err
	}
	for i, e := range edges {
		if failed.Index <= at[i] {
			return &edgeError{err, e}
		}
	}
	return err
}

// late returns a statement that sets sexton.late to whether the snapshot has any child of
// the keys. The completion in the same transaction reads it.
func (p *Parent) late(c *chunk, edges []*Edge) batch.Statement {
	args := &dml.Args{}
	terms, keysAt := []string{"false"}, args.Once(c.keys())
	if c.found {
		terms, edges = []string{"true"}, nil
	}
	for _, e := range edges {
		terms = append(terms, e.Finds(p.Key, e.Leaf, p.Parameter(keysAt()), args))
	}
	return batch.Statement{SQL: "SELECT pg_catalog.set_config('sexton.late', (" + strings.Join(terms, " OR ") + ")::pg_catalog.text, true)", Args: args.Values}
}

// shares reports whether another edge updates the same child. Rows that it leaves may
// belong to this edge.
func (p *Parent) shares(e *Edge) bool {
	for _, other := range p.Edges {
		if other.Edge != e.Edge && other.Updates() && other.Child.OID == e.Child.OID && other.Database == e.Database {
			return true
		}
	}
	return false
}

// counts reports whether the edge's last statement returns the number of rows instead of
// only affecting them.
func (e *Edge) counts(keys dml.Keys) bool {
	return e.Count != "" || keys.Keep != nil && !keys.Keep.Ruled || e.EmitsEvent && !e.Updates()
}

// statements returns the statements that change rows of keys. build returns the SQL of
// the last one. If that returns a number of rows, it is scanned into rows. Rows of a
// table with rules cannot be kept: a statement before the last one counts them as left
// out.
func (e *Edge) statements(names pgcatalog.Names, keys dml.Keys, rows *int64, build func(dml.Keys) (string, []any)) (all []batch.Statement) {
	counts := e.counts(keys)
	if keys.Keep != nil {
		all = append(all, keys.Keep.Begin(names))
	}
	if keys.Keep != nil && keys.Keep.Ruled {
		sql, args := build(keys)
		all = append(all, batch.Statement{SQL: sql, Args: args})
		keys.Keep = nil
	}
	sql, args := build(keys)
	last := batch.Statement{SQL: sql, Args: args}
	if counts {
		last.Scan = batch.One(rows)
	}
	return append(all, last)
}

// find returns the edges that have rows of the chunk's keys, and all edges in other
// databases. It uses a read-only transaction.
func (s *session) find(ctx context.Context, c *chunk, edges []*Edge) ([]*Edge, error) {
	args := &dml.Args{}
	keysAt := args.Once(c.keys())
	terms := make([]string, len(edges))
	for i, e := range edges {
		if terms[i] = "true"; !e.remote() {
			terms[i] = e.Finds(c.parent.Key, e.Leaf, c.parent.Parameter(keysAt()), args)
		}
	}
	var found []bool
	limits := s.on.Limits
	limits.LockTimeout, limits.Reads = min(limits.LockTimeout, lockWait), true
	_, err := s.run(ctx, limits, batch.Statement{SQL: dml.IndexScans},
		batch.Statement{SQL: "SELECT ARRAY[" + strings.Join(terms, ",\n") + "]", Args: args.Values, Scan: batch.One(&found)})
	if err != nil {
		return nil, err
	}
	var live []*Edge
	for i, e := range edges {
		if found[i] {
			live = append(live, e)
		}
	}
	return live, nil
}

// watch looks for the session that a transaction waits for. The function that it returns
// stops that and returns the session's name.
func (s *session) watch(ctx context.Context, e *Edge) func() string {
	waits := s.Pace.Waits
	watching := pace.Run{Throttle: pace.Throttle{Blocker: s.Pace.Blocker}, Waits: waits}
	return watching.Watch(ctx, e.Database)
}
