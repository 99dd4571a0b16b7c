package drain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"sexton/internal/batch"
	"sexton/internal/lease"
	"sexton/internal/pace"
)

// ErrChanged is returned by a pass if a table has changed since its edges were resolved.
var ErrChanged = errors.New("tables have changed since definitions were bound to them")

// Remote is another database that has children of the pass's parents. Changes there are
// committed durably before the tombstones are removed.
type Remote struct {
	// Session is nil if the database is unreachable. Err is then the reason.
	Session *batch.Session
	Err     error
}

// Pass drains the edges of parents whose rows were deleted. It is one run of a River job.
// Its sessions take chunks in parallel, each over its own connection, all under one
// lease.
type Pass struct {
	Source  Source
	Parents []*Parent
	// Session is the first session. Connections is the maximum number of sessions.
	// Connect opens another one, or returns nil if no connection is free.
	Session     *batch.Session
	Connections int
	Connect     func(ctx context.Context) *batch.Session
	Remotes     map[string]*Remote
	// Target is the time that one transaction should take. If it is 0, sizes are fixed: a
	// chunk has Chunk tombstones, and a statement changes at most Edge.Limit rows.
	Target time.Duration
	Chunk  int
	Sizes  *Sizes
	// Left returns how many rows the pass may still change through an edge. If it is nil,
	// there is no limit.
	Left func(e *Edge) int64
	// MarkUnkept, if set, records that children of the chunk's parents are deleted
	// without being saved for undo. It is called before the first change to the chunk's
	// rows. origins are the IDs of the undo sets in which the parents are saved.
	MarkUnkept func(ctx context.Context, on *batch.Session, origins []int64) error
	Pace       *pace.Run
	Report     Report

	mu           sync.Mutex
	changed      chan struct{} // closed by signal; sessions without a chunk wait for it
	active       int           // number of sessions that work on a chunk
	started      int           // number of sessions that were started
	alive        int           // number of sessions that have not returned
	oneSession   bool          // only the first session continues, because sessions kept locking rows of each other
	loadedAt     time.Time
	queueEmpty   bool                    // the last load read all queues from the start and found nothing
	recheckDue   bool                    // tombstones marked for a recheck may be due
	resumeAt     time.Time               // time at which the last tombstone that was deferred for a lock is due again
	deferredFor  map[int64]time.Duration // by tombstone ID, the time for which it was last deferred for a lock
	deferReason  string                  // reason for which tombstones were last deferred for a lock
	reported     map[string]bool         // texts of faults that deferHeld has reported
	attempted    map[int64]bool          // IDs of tombstones that had an attempt in this pass
	upperBounded bool                    // later direct statements have an upper bound, because one has timed out
	err          error

	// paceMu guards Pace and Session.Conn, over which Pace queries the server.
	paceMu sync.Mutex
	// turn serializes the transactions of the sessions while othersActive is set.
	turn sync.Mutex
	// othersActive is set while other clients use the server.
	othersActive atomic.Bool
	// remoteMu guards the sessions of Remotes.
	remoteMu sync.Mutex

	sessions sync.WaitGroup
}

// session works on one chunk at a time, over one connection.
type session struct {
	*Pass

	on *batch.Session
	// first is set for the one session that continues if Pass.oneSession is set.
	first bool
}

// Run drains tombstones until none is due, the time of Pace is used up, or ctx ends. It
// returns an error only if the pass cannot continue. A killed pass needs no cleanup: the
// next pass finds the tombstones and the rows that are left.
func (p *Pass) Run(ctx context.Context) error {
	p.changed, p.reported = make(chan struct{}), map[string]bool{}
	p.deferredFor, p.attempted = map[int64]time.Duration{}, map[int64]bool{}
	if p.Sizes == nil {
		p.Sizes = &Sizes{}
	}
	for _, parent := range p.Parents {
		parent.loadedTo = Beginning()
	}
	// withPace sets the connection of p.Session to the connection of the calling session.
	// The first session therefore works with a copy of p.Session.
	own, conn := p.Session, p.Session.Conn
	p.startSession(ctx, &batch.Session{
		Conn: conn, Names: own.Names, Fence: own.Fence, Limits: own.Limits, Slot: own.Slot, Kept: own.Kept,
	})
	p.sessions.Wait()
	// withPace may have left a connection in p.Session that another session has released
	// to its pool. If the pass's own connection is closed, p.Session keeps the other one.
	if !conn.IsClosed() {
		own.Conn = conn
	}
	return p.err
}

// startSession runs a session in its own goroutine. A panic in the session ends the pass,
// but not the process.
func (p *Pass) startSession(ctx context.Context, on *batch.Session) {
	s := &session{Pass: p, on: on, first: p.started == 0}
	p.started++
	p.alive++
	p.sessions.Go(func() {
		defer func() {
			if r := recover(); r != nil {
				p.fail(fmt.Errorf("panic: %v\n\n%s", r, debug.Stack()))
			}
		}()
		if err := s.drainChunks(ctx); err != nil {
			p.fail(err)
		}
	})
}

// fail ends the pass. It keeps the first error, except that lease.ErrLost replaces any
// other.
func (p *Pass) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil || errors.Is(err, lease.ErrLost) {
		p.err = err
	}
	p.signal()
}

// drainChunks takes chunks from the queue and drains them until the pass has no chunk
// left.
func (s *session) drainChunks(ctx context.Context) error {
	for {
		c, err := s.nextChunk(ctx)
		if c == nil {
			s.mu.Lock()
			s.alive--
			s.signal()
			s.mu.Unlock()
			return err
		}
		if s.awaitReplicas(ctx); s.ended() {
			s.returnFirst(c)
		} else {
			err = s.drainChunk(ctx, c)
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

// leavePass ends the session after an error. If other sessions are alive, it drops
// errNoConnection, since they continue without this one.
func (s *session) leavePass(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.alive--; s.alive > 0 && errors.Is(err, errNoConnection) {
		return nil
	}
	return err
}

// drainChunk drains one chunk. It first tries the direct statements. If they take too
// long or meet a lock, it changes the rows in pieces and then runs the direct statements
// for the rows that are left. A step returns done if this session has no more work with
// the chunk: its tombstones were removed, deferred or returned to the queue. drainChunk
// returns an error only if the session cannot continue.
func (s *session) drainChunk(ctx context.Context, c *chunk) error {
	edges, obstacle := s.usableEdges(c)
	if obstacle != nil && len(edges) == 0 {
		return s.deferChunk(ctx, c, *obstacle)
	}
	edges, done, err := s.selectEdges(ctx, c, edges)
	if done || err != nil {
		return err
	}
	if s.MarkUnkept != nil && c.tombstones[0].Origin != nil {
		if err := s.MarkUnkept(ctx, s.on, c.origins()); err != nil {
			return s.handleError(ctx, c, err)
		}
	}
	if !s.needsPieces(c, edges) {
		if done, err = s.tryDirect(ctx, c, edges, obstacle); done || err != nil {
			return err
		}
	}
	if done, err = s.drainPieces(ctx, c, edges); done || err != nil {
		return err
	}
	return s.finishChunk(ctx, c, edges)
}

// usableEdges returns the edges of the parent that can be drained now, and the reason if
// some cannot. Of several reasons, it prefers that of a broken edge, and returns a lock
// conflict only if there is no other reason.
func (s *session) usableEdges(c *chunk) (usable []*Edge, obstacle *batch.Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.parent.held != nil {
		return nil, c.parent.held
	}
	var unusable []*Edge
	for _, e := range c.parent.Edges {
		f := s.edgeObstacle(e)
		if f == nil {
			if !mustAwaitEvents(e, unusable) {
				usable = append(usable, e)
			}
			continue
		}
		unusable = append(unusable, e)
		if obstacle == nil || e.Broken != "" || obstacle.Lock() && !f.Lock() {
			obstacle = f
		}
	}
	return usable, obstacle
}

// mustAwaitEvents reports whether an edge must wait because an earlier edge, whose
// deleted rows emit events, has rows left. Deleting rows of the waiting edge could delete
// rows of the earlier edge by ON DELETE CASCADE, without their event.
func mustAwaitEvents(e *Edge, left []*Edge) bool {
	return !e.Updates() && slices.ContainsFunc(left, func(earlier *Edge) bool { return earlier.EmitsEvent })
}

// edgeObstacle returns the reason why an edge cannot be drained now, or nil. A locked
// table is an obstacle, but locked rows are not. The caller holds p.mu.
func (p *Pass) edgeObstacle(e *Edge) *batch.Fault {
	switch remote := p.Remotes[e.Database]; {
	case e.Broken != "":
		return &batch.Fault{Table: e.Child.Label(), Message: e.Broken, Verdict: batch.Unavailable}
	case e.remote() && (remote == nil || remote.Session == nil):
		f := p.unreachable(e)
		return &f
	case e.blocked.lasts() && e.blocked.table:
		return &batch.Fault{Table: e.Child.Label(), Message: e.blocked.reason, Verdict: batch.LockTimeout}
	}
	return e.held
}

// manyEdges is the number of edges above which selectEdges queries which edges have rows.
const manyEdges = 10

// selectEdges returns the edges to drain. If the parent is living or has more than
// manyEdges edges, it queries which edges have rows and leaves out the other edges. The
// recheck finds rows that are inserted there later. If an edge that refuses the deletion
// (Edge.Refusal) has rows, the key has an attempt and done is true.
func (s *session) selectEdges(ctx context.Context, c *chunk, edges []*Edge) (selected []*Edge, done bool, err error) {
	if len(edges) > manyEdges || c.parent.lives() {
		selected, err := s.edgesWithRows(ctx, c, edges)
		switch f := batch.Judge(err); {
		case err == nil:
			edges = selected
		case f.Lock():
			return nil, true, s.postpone(ctx, c, s.tableHolder(ctx, c.parent, edges, f))
		case c.parent.lives() || f.SQLState != noPrivilege && f.Verdict != batch.Timeout:
			return nil, true, s.handleError(ctx, c, err)
		default:
			// The query reads all edges, so its error does not name the failing edge.
			// Keep all edges: the direct statement on each edge then shows which edge
			// lacks a privilege or an index.
		}
	}
	if i := slices.IndexFunc(edges, func(e *Edge) bool { return e.Refusal != "" }); i >= 0 {
		return nil, true, s.recordAttempt(ctx, c, batch.Fault{
			Table:   edges[i].Child.Label(),
			Message: edges[i].Refusal,
		})
	}
	return edges, false, nil
}

// needsPieces reports whether the chunk is drained in pieces without trying the direct
// statements first: they timed out before, an edge limits its rows, or rows are locked.
func (s *session) needsPieces(c *chunk, edges []*Edge) bool {
	return c.inPieces || slices.ContainsFunc(edges, func(e *Edge) bool { return s.limited(e) || s.blockedNow(e) })
}

// tryDirect runs the direct statements with a short timeout. It returns false if the
// chunk must be drained in pieces: rows are locked, a row cannot be moved because of a
// duplicate, or the statements of a single key take too long. It divides a chunk of
// several keys that takes too long.
func (s *session) tryDirect(ctx context.Context, c *chunk, edges []*Edge, obstacle *batch.Fault) (done bool, _ error) {
	// The fixed part of the duration does not depend on the number of keys. Without the
	// allowance for it, chunks could become smaller without becoming faster.
	err := s.runDirect(ctx, c, edges, obstacle, cutoffs*s.directTarget(c.parent)+s.Sizes.fixed(c.parent.Name))
	switch f := batch.Judge(err); {
	case err == nil:
		return true, nil
	case s.markDuplicatesFirst(c, err):
		s.returnFirst(c)
		return true, nil
	case c.parent.isDuplicate(err), f.Lock():
		return false, nil
	case f.Verdict != batch.Timeout:
		return true, s.handleError(ctx, c, err)
	}
	s.shrinkDirect(c)
	switch n := len(c.tombstones); {
	case n > parts:
		s.divide(c)
	case n > 1:
		s.splitIntoKeys(c)
	default:
		return false, nil
	}
	return true, nil
}

// shrinkDirect makes later chunks smaller after a direct statement timed out. The planner
// may have chosen a sequential scan. So all later direct statements of the pass also
// limit the keys by an upper bound: with both bounds the planner never chooses one.
func (s *session) shrinkDirect(c *chunk) {
	s.Sizes.shrink(c.parent.Name, len(c.tombstones))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.upperBounded = true
}

// drainPieces changes the rows of each edge in pieces, and then the rows of Parent.Tree.
// An error on one edge does not stop the others.
func (s *session) drainPieces(ctx context.Context, c *chunk, edges []*Edge) (done bool, _ error) {
	c.begun = len(c.tombstones) == 1
	var failed error
	var unfinished []*Edge
	locked := ""
	for _, e := range edges {
		if mustAwaitEvents(e, unfinished) {
			continue
		}
		left, err := s.drainEdge(ctx, c, e)
		if left || err != nil {
			unfinished = append(unfinished, e)
		}
		switch f := batch.Judge(err); {
		case err == nil:
		case f.Verdict == batch.Conflict: // finishChunk changes these rows.
		case f.Lock() && c.parent.lives():
			locked = cmp.Or(locked, s.tableHolder(ctx, c.parent, []*Edge{e}, f))
		case f.Lock():
			s.block(e, s.tableHolder(ctx, c.parent, []*Edge{e}, f), true)
		case f.Verdict == batch.Fatal:
			return true, s.handleError(ctx, c, err)
		case failed == nil:
			failed = err
		}
	}
	if failed == nil && locked != "" {
		return true, s.postpone(ctx, c, locked)
	}
	if failed == nil && c.parent.Tree != nil {
		failed = c.parent.Tree(ctx, s.treeSession(), c.tombstones[0])
	}
	return failed != nil, s.handleError(ctx, c, failed)
}

// finishChunk drains the rows that the pieces left, by the direct statements with the
// full statement timeout. If rows are locked, it waits for each edge's locks with the
// full lock timeout and then runs the direct statements once more. If a lock is still
// held, it defers the chunk.
func (s *session) finishChunk(ctx context.Context, c *chunk, edges []*Edge) error {
	usable, obstacle := s.usableEdges(c)
	if obstacle != nil {
		return s.deferChunk(ctx, c, *obstacle)
	}
	if !c.parent.lives() {
		// Rows may have been inserted into edges that selectEdges left out.
		edges = usable
	}
	err := s.retryDirect(ctx, c, edges)
	if !batch.Judge(err).Lock() {
		return s.handleError(ctx, c, err)
	}
	if err := s.removeFinished(ctx, c); err != nil || len(c.tombstones) == 0 {
		return s.handleError(ctx, c, err)
	}
	if done, err := s.drainLocked(ctx, c, edges); done || err != nil {
		return err
	}
	if err = s.retryDirect(ctx, c, edges); batch.Judge(err).Lock() {
		return s.postpone(ctx, c, "children of "+c.parent.Label()+": "+batch.Judge(err).Message)
	}
	return s.handleError(ctx, c, err)
}

// mostConflicts limits how often in a row a statement is tried that ends with a
// serialization failure or deadlock.
const mostConflicts = 5

// retryDirect calls runDirect with the full statement timeout and retries it after
// serialization failures and deadlocks.
func (s *session) retryDirect(ctx context.Context, c *chunk, edges []*Edge) (err error) {
	for range mostConflicts {
		err = s.runDirect(ctx, c, edges, nil, s.on.Limits.StatementTimeout)
		if batch.Judge(err).Verdict != batch.Conflict || s.ended() {
			return err
		}
	}
	return err
}

// runDirect drains the edges in other databases, runs the direct statements for the local
// edges and removes the finished tombstones. If obstacle is set, another edge of the
// parent cannot be drained: runDirect keeps the tombstones and defers the chunk.
func (s *session) runDirect(ctx context.Context, c *chunk, edges []*Edge, obstacle *batch.Fault,
	timeout time.Duration,
) error {
	var local []*Edge
	for _, e := range edges {
		if !e.remote() {
			local = append(local, e)
			continue
		}
		if err := s.drainRemote(ctx, c, e); err != nil {
			return err
		}
	}
	removed, rows, err := s.changeDirect(ctx, c, local, obstacle == nil, s.shortLimits(timeout))
	if err != nil {
		return err
	}
	if s.Target > 0 {
		s.Sizes.learn(c.parent.Name, len(c.tombstones), s.on.Took(), s.directTarget(c.parent), mostKeys)
	}
	if obstacle != nil {
		return s.deferChunk(ctx, c, *obstacle)
	}
	return s.dropRemoved(ctx, c, removed, rows)
}

// mostTries limits how often one pass retries a chunk after a transaction that left rows,
// or after an error that a retry may avoid.
const mostTries = 20

// KeptRowsMessage is the fault's message if children remain after a transaction that
// skipped no locked row.
const KeptRowsMessage = "children are left although no session has locked them: a trigger or rule of a child table keeps or restores them"

// dropRemoved drops the removed tombstones from the chunk. If tombstones are left, a
// trigger or rule keeps or restores their rows. dropRemoved then retries the chunk and,
// after mostTries tries, records an attempt. If the transaction changed no row, a retry
// would hardly change one. dropRemoved then records the attempt after the first try or,
// if the parent is living, after mostConflicts tries.
func (s *session) dropRemoved(ctx context.Context, c *chunk, removed Removed, rows int64) error {
	if s.reportRemoved(ctx, c, removed); len(c.tombstones) == 0 {
		return nil
	}
	most := mostTries
	if rows == 0 {
		most = 1
		if c.parent.lives() {
			// An edge that selectEdges left out may have new rows.
			most = mostConflicts
		}
	}
	if c.tries++; c.tries < most {
		s.returnFirst(c)
		return nil
	}
	return s.recordAttempt(ctx, c, batch.Fault{Table: c.parent.Label(), Message: KeptRowsMessage})
}

// reportRemoved drops the removed tombstones from the chunk and reports them.
func (s *session) reportRemoved(ctx context.Context, c *chunk, removed Removed) {
	var deleted, living, left []Tombstone
	for _, t := range c.tombstones {
		switch lives, ok := removed[t.ID]; {
		case !ok:
			left = append(left, t)
		case lives:
			living = append(living, t)
		default:
			deleted = append(deleted, t)
		}
	}
	s.mu.Lock()
	for _, t := range c.tombstones {
		delete(s.deferredFor, t.ID)
	}
	s.Report.Removed(c.parent, deleted, false)
	s.Report.Removed(c.parent, living, true)
	if s.Report.Progress != nil {
		s.Report.Progress(ctx)
	}
	s.mu.Unlock()
	c.tombstones = left
}
