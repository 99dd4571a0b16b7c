package drain

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"sexton/internal/batch"
	"sexton/internal/drain/dml"
	"sexton/internal/pace"
)

const (
	// Tombstones with locked rows are deferred for shortestWait at first, and then for
	// twice as long after each further lock timeout, up to longestWait.
	shortestWait, longestWait = time.Second, 15 * time.Second
	// lockedRows is the number of locked rows that one transaction waits for.
	lockedRows = 10
	// mostOwnConflicts is the number of lock conflicts of one chunk with other sessions
	// of the pass after which the pass continues with one session.
	mostOwnConflicts = 3
)

// block records that other sessions hold locks on rows of a leaf, or on the table. Until
// it ends, no chunk waits for locked rows of that leaf before it has drained its other
// rows.
type block struct {
	until  time.Time
	length time.Duration
	reason string
	// table reports that the whole table is locked, so that no row can be changed.
	table bool
}

func (b *block) lasts() bool { return b != nil && time.Now().Before(b.until) }

// block records that other sessions hold locks on rows of the edge or, if table is set,
// on its table. If an earlier block of the edge has not ended, it only adds table to that
// block. Otherwise the new block lasts twice as long as the one before, or shortestWait
// if a row of the edge was changed since then.
func (p *Pass) block(e *Edge, reason string, table bool) *block {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e.blocked.lasts() {
		e.blocked.table = e.blocked.table || table
		return e.blocked
	}
	length := shortestWait
	if e.blocked != nil {
		length = min(2*e.blocked.length, longestWait)
	}
	e.blocked = &block{until: time.Now().Add(length), length: length, reason: reason, table: table}
	return e.blocked
}

// blockedNow reports whether the edge has a block that has not ended.
func (p *Pass) blockedNow(e *Edge) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return e.blocked.lasts()
}

// tableHolder returns the reason why no row of the edges can be read or changed: the
// session that has locked one of their tables or, if no such session is found, the lock
// error.
func (s *session) tableHolder(ctx context.Context, p *Parent, edges []*Edge, f batch.Fault) string {
	tables := []uint32{p.OID}
	for _, e := range edges {
		if !e.remote() {
			tables = append(tables, e.Leaf.OID, e.Child.OID)
		}
	}
	if holder, err := s.on.TableLock(ctx, tables); err == nil && holder != "" {
		return holder
	}
	label := p.Label()
	if len(edges) == 1 {
		label = cmp.Or(f.Table, edges[0].Child.Label())
	}
	return label + ": " + f.Message
}

// removeFinished removes those tombstones of a chunk that have no rows left, so that only
// tombstones with locked rows are deferred. It does nothing if an edge is in another
// database, since the statement cannot read rows there.
func (s *session) removeFinished(ctx context.Context, c *chunk) error {
	if len(c.tombstones) == 1 || slices.ContainsFunc(c.parent.Edges, (*Edge).remote) {
		return nil
	}
	removed := Removed{}
	_, err := s.run(ctx, s.shortLimits(s.on.Limits.StatementTimeout),
		s.Source.Complete(c.parent, c.tombstones, true, &removed))
	switch f := batch.Judge(err); {
	case err == nil:
		s.reportRemoved(ctx, c, removed)
	case f.Verdict != batch.Fatal:
		// On an error, the caller also defers the tombstones that have no rows.
		return nil
	}
	return err
}

// drainLocked waits until other sessions release the parent's row and the rows of its
// edges, and changes the rows of the edges. It returns true if this session has no more
// work with the chunk, for example because a lock was not released in time.
func (s *session) drainLocked(ctx context.Context, c *chunk, edges []*Edge) (done bool, _ error) {
	if c.parent.lives() {
		holder, err := s.awaitParent(ctx, c)
		switch f := batch.Judge(err); {
		case f.Lock():
			return true, s.postpone(ctx, c, c.parent.Label()+": "+cmp.Or(holder, f.Message))
		case err != nil:
			return true, s.handleError(ctx, c, err)
		}
	}
	for _, e := range edges {
		if e.remote() {
			continue
		}
		holder, err := s.awaitRows(ctx, c, e)
		switch f := batch.Judge(err); {
		case err == nil:
		case f.Lock() && s.ownSession(holder):
			s.returnAfterConflict(c)
			return true, nil
		case f.Lock():
			reason := "rows of " + e.Child.Label() + ": " + f.Message
			if holder != "" {
				reason = e.Child.Label() + ": " + holder
			}
			return true, s.postpone(ctx, c, s.block(e, reason, false).reason)
		default:
			return true, s.handleError(ctx, c, err)
		}
	}
	return false, nil
}

// awaitParent waits for the lock on the parent's row. If that takes too long, it returns
// the name of the lock holder.
func (s *session) awaitParent(ctx context.Context, c *chunk) (holder string, err error) {
	sql, args := c.parent.Lock(c.keys())
	stop := s.watchHolder(ctx, "")
	_, err = s.run(ctx, s.on.Limits, batch.Statement{SQL: sql, Args: args})
	return stop(), err
}

// awaitRows changes the rows of an edge that other sessions have locked, a few at a time.
// It first locks them with SELECT FOR UPDATE, which gets the lock even if other sessions
// update the row all the time. The next statement has a newer snapshot and checks the
// parent in it. If a lock is not released in time, awaitRows returns the name of the lock
// holder.
func (s *session) awaitRows(ctx context.Context, c *chunk, e *Edge) (holder string, err error) {
	limits := s.on.Limits
	if s.blockedNow(e) {
		// A session has just waited for a lock in this edge without success.
		limits.LockTimeout = min(limits.LockTimeout, lockWait)
	}
	for {
		if s.ended() || s.rowsLeft(e) <= 0 {
			return "", ErrYield
		}
		keys := s.keys(c, e)
		lock, lockArgs := e.Window(e.Leaf, "", e.Lock(), keys, lockedRows)
		stop := s.watchHolder(ctx, e.Database)
		rows, err := s.changeRows(ctx, e, limits, keys, func(keys dml.Keys) (string, []any) {
			return e.CleanStatement(s.on.Names, e.Leaf, keys, lockedRows)
		}, batch.Statement{SQL: lock, Args: lockArgs})
		holder = stop()
		if err != nil {
			return holder, withEdge(err, e)
		}
		s.reportChanged(ctx, c, e, rows)
		if rows < lockedRows {
			return "", nil
		}
	}
}

// watchHolder searches for the session that holds the lock a transaction waits for. The
// returned function ends the search and returns that session's name, or "".
func (s *session) watchHolder(ctx context.Context, database string) func() string {
	watch := pace.Run{Throttle: pace.Throttle{Blocker: s.Pace.Blocker}, Waits: s.Pace.Waits}
	return watch.Watch(ctx, database)
}

// ownSession reports whether the holder of a lock is a session of the same pass.
func (s *session) ownSession(holder string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.started > 1 && holder != "" && strings.Contains(holder, "("+s.on.Name()+")")
}

// returnAfterConflict returns a chunk to the queue that waited for a lock of another
// session of the pass. After mostOwnConflicts such waits the pass continues with one
// session.
func (s *session) returnAfterConflict(c *chunk) {
	if c.ownConflicts++; c.ownConflicts >= mostOwnConflicts {
		s.mu.Lock()
		s.oneSession = true
		s.mu.Unlock()
	}
	s.returnLast(c)
}

// postpone defers the chunk's tombstones because of a lock, without an attempt. Each time
// the deferral lasts twice as long. The pass waits until they are due again.
func (s *session) postpone(ctx context.Context, c *chunk, reason string) error {
	s.mu.Lock()
	longest := time.Duration(0)
	for _, t := range c.tombstones {
		s.deferredFor[t.ID] = min(max(2*s.deferredFor[t.ID], shortestWait), longestWait)
		longest = max(longest, s.deferredFor[t.ID])
	}
	s.deferReason = reason
	s.Pace.Waits(ctx, pace.WaitLock, reason)
	s.mu.Unlock()
	_, err := s.recordFailure(ctx, c, batch.Fault{Message: reason, Verdict: batch.LockTimeout}, longest)
	s.mu.Lock()
	defer s.mu.Unlock()
	if resumeAt := time.Now().Add(longest + loadEvery); resumeAt.After(s.resumeAt) {
		s.resumeAt = resumeAt
	}
	return err
}
