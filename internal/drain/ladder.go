package drain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"sexton/internal/batch"
	"sexton/internal/pace"
)

const (
	// manyEdges is the number of edges from which on those with rows are looked for first.
	manyEdges = 10
	// mostTries is how often a chunk whose rows come back is tried in one pass.
	mostTries = 20
	// mostOwn is how often a chunk may meet other sessions of the pass before it continues with one session.
	mostOwn = 3
	// mostConflicts is how often a direct statement is sent again after a conflict.
	mostConflicts = 5
	// mostMisses is how many single keys in a row may time out in an edge before it is held.
	mostMisses = 3
)

// ErrYield ends the work on a chunk because others wait or the pass ends.
var ErrYield = errors.New("yield")

// errTooMany ends the work on a chunk of several keys that have more rows than a statement with a fixed limit.
var errTooMany = errors.New("more rows than a statement may change")

// errNoConnection ends a session that has lost its connection and gets no other.
var errNoConnection = errors.New("no connection in place of a lost one")

// clear is the ladder for one chunk: direct, then pieces, then direct again for what is left. It returns an error only if the
// session cannot go on.
func (s *session) clear(ctx context.Context, c *chunk) error {
	edges, why := s.edges(c)
	if why != nil && len(edges) == 0 {
		return s.leave(ctx, c, why)
	}
	if len(edges) > manyEdges || c.parent.lives() {
		found, err := s.find(ctx, c, edges)
		switch f := batch.Judge(err); {
		case err == nil:
			edges = found
		case f.Lock():
			return s.postpone(ctx, c, s.tableHolder(ctx, c.parent, edges, f))
		case f.SQLState != "42501" || c.parent.lives(): // A statement on the edge itself shows which one lacks a right.
			return s.climb(ctx, c, err)
		}
	}
	if at := slices.IndexFunc(edges, func(e *Edge) bool { return e.Refusal != "" }); at >= 0 {
		return s.attempt(ctx, c, batch.Fault{Table: edges[at].Child.Label(), Message: edges[at].Refusal})
	}
	var err error
	piecesFirst := c.heavy
	for _, e := range edges {
		piecesFirst = piecesFirst || s.slow(e) || s.blockedNow(e)
	}
	if !piecesFirst {
		err = s.try(ctx, c, edges, why, cutoffs*s.directTarget(c.parent)+s.Sizes.fixed(c.parent.Name))
		switch f := batch.Judge(err); {
		case err == nil:
			return nil
		case s.doubles(c, err):
			s.giveBack(true, c)
			return nil
		case c.parent.duplicate(err):
		case f.Verdict == batch.Timeout:
			s.tooLong(c)
			switch n := len(c.tombstones); {
			case n > parts:
				s.divide(c)
				return nil
			case n > 1:
				return s.yield(c)
			}
		case !f.Lock():
			return s.climb(ctx, c, err)
		}
	}
	c.alone = len(c.tombstones) == 1
	var failed error
	untold, locked := false, ""
	for _, e := range edges {
		if untold && !e.Updates() {
			continue // Its native cascades could delete rows without their event.
		}
		left, err := s.pieces(ctx, c, e)
		untold = untold || e.Tells && (left || err != nil)
		switch f := batch.Judge(err); {
		case err == nil:
		case errors.Is(err, ErrYield):
			return s.yield(c)
		case errors.Is(err, errTooMany):
			s.divide(c)
			return nil
		case f.Verdict == batch.Conflict:
		case f.Lock() && c.parent.lives():
			locked = cmp.Or(locked, s.tableHolder(ctx, c.parent, []*Edge{e}, f))
		case f.Lock():
			s.block(e, s.tableHolder(ctx, c.parent, []*Edge{e}, f), true)
		case f.Verdict == batch.Fatal:
			return s.climb(ctx, c, err)
		case failed == nil:
			failed = err
		}
	}
	if failed == nil && locked != "" {
		return s.postpone(ctx, c, locked)
	}
	if failed == nil && c.parent.Tree != nil {
		failed = c.parent.Tree(ctx, s.tree(), c.tombstones[0])
	}
	if errors.Is(failed, ErrYield) {
		return s.yield(c)
	}
	if failed != nil {
		return s.climb(ctx, c, failed)
	}
	all, why := s.edges(c)
	if why != nil {
		return s.leave(ctx, c, why)
	}
	if !c.parent.lives() {
		edges = all
	}
	return s.last(ctx, c, edges)
}

// duplicate reports whether the error means that a row of some edge cannot be moved.
func (p *Parent) duplicate(err error) bool {
	return slices.ContainsFunc(p.Edges, func(e *Edge) bool { return e.duplicate(err) })
}

// doubles has moves that met a row which they cannot move be preceded by a statement for such rows. It returns false if there is
// none, or the move has failed in spite of it.
func (s *session) doubles(c *chunk, err error) (again bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range c.parent.Edges {
		if e.duplicate(err) && e.Double != nil && !e.doubled {
			e.doubled, again = true, true
		}
	}
	return again
}

// doubled reports whether rows of the edge could not be moved.
func (p *Pass) doubled(e *Edge) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return e.doubled
}

// tree is the session for Tree.
func (s *session) tree() *TreeSession {
	began := time.Now()
	return &TreeSession{
		On: s.on,
		Pace: &pace.Run{
			Until: s.Pace.Until, Stop: s.Pace.Stop, Ended: s.ended, Target: s.Target, Waits: s.Pace.Waits,
			Throttle: pace.Throttle{Blocker: s.Pace.Blocker},
		},
		Send: func(ctx context.Context, limits batch.Limits, statements ...batch.Statement) error {
			plain := s.on.Plain
			s.on.Plain = false // The statements of trees need planner settings.
			_, err := s.run(ctx, limits, statements...)
			s.on.Plain = plain
			return err
		},
		Yields: func(ctx context.Context) bool {
			s.awaitReplicas(ctx)
			waits, err := s.waiting(ctx)
			return err != nil || s.ended() || waits && time.Since(began) > slice
		},
	}
}

// last tries the direct statement with all the time that the settings allow, and waits for rows that stay locked.
func (s *session) last(ctx context.Context, c *chunk, edges []*Edge) error {
	err := s.tryAgain(ctx, c, edges)
	if !batch.Judge(err).Lock() {
		return s.climb(ctx, c, err)
	}
	if err := s.completeFinished(ctx, c); err != nil || len(c.tombstones) == 0 {
		return s.climb(ctx, c, err)
	}
	if c.parent.lives() {
		holder, err := s.awaitParent(ctx, c)
		if f := batch.Judge(err); f.Lock() {
			return s.postpone(ctx, c, c.parent.Label()+": "+cmp.Or(holder, f.Message))
		} else if err != nil {
			return s.climb(ctx, c, err)
		}
	}
	for _, e := range edges {
		if e.remote() {
			continue
		}
		holder, err := s.await(ctx, c, e)
		switch f := batch.Judge(err); {
		case err == nil:
		case errors.Is(err, ErrYield):
			return s.yield(c)
		case f.Lock() && s.ownSession(holder):
			return s.requeue(c)
		case f.Lock():
			reason := "rows of " + e.Child.Label() + ": " + f.Message
			if holder != "" {
				reason = e.Child.Label() + ": " + holder
			}
			b := s.block(e, reason, false)
			return s.postpone(ctx, c, b.reason)
		default:
			return s.climb(ctx, c, err)
		}
	}
	if err = s.tryAgain(ctx, c, edges); batch.Judge(err).Lock() {
		return s.postpone(ctx, c, "children of "+c.parent.Label()+": "+batch.Judge(err).Message)
	}
	return s.climb(ctx, c, err)
}

// tryAgain is try with all the time that the settings allow. A conflict with another session is tried again a few times.
func (s *session) tryAgain(ctx context.Context, c *chunk, edges []*Edge) (err error) {
	for range mostConflicts {
		err = s.try(ctx, c, edges, nil, s.on.Limits.StatementTimeout)
		if batch.Judge(err).Verdict != batch.Conflict || s.ended() {
			return err
		}
	}
	return err
}

// completeFinished removes the tombstones of a chunk that have no rows left, although others have locked rows.
func (s *session) completeFinished(ctx context.Context, c *chunk) error {
	if len(c.tombstones) == 1 {
		return nil
	}
	done := Done{}
	_, err := s.run(ctx, s.short(s.on.Limits.StatementTimeout), s.Source.Complete(c.parent, c.tombstones, true, &done))
	switch f := batch.Judge(err); {
	case err == nil:
		s.remove(ctx, c, done)
	case f.Verdict != batch.Fatal:
		return nil // They wait with the others.
	}
	return err
}

// tableHolder is the reason if no row of some edges can be read or changed: the session that has locked a table.
func (s *session) tableHolder(ctx context.Context, p *Parent, edges []*Edge, f batch.Fault) string {
	tables := []uint32{p.OID}
	for _, e := range edges {
		if !e.remote() {
			tables = append(tables, e.Leaf.OID, e.Child.OID)
		}
	}
	if found, err := s.on.TableLocks(ctx, tables); err == nil && len(found) > 0 {
		return found[0].Text
	}
	label := p.Label()
	if len(edges) == 1 {
		label = cmp.Or(f.Table, edges[0].Child.Label())
	}
	return label + ": " + f.Message
}

// climb decides what follows an error that is not a lock: the session ends, an edge is held, the chunk is divided, or its one
// key has an attempt.
func (s *session) climb(ctx context.Context, c *chunk, err error) error {
	if err == nil {
		return nil
	}
	failed, onEdge := errors.AsType[*edgeError](err)
	table := c.parent.Label()
	if onEdge {
		table = failed.edge.Child.Label()
	}
	f := batch.Judge(err)
	f.Table = cmp.Or(f.Table, table)
	switch {
	case errors.Is(err, ErrChanged):
		return err
	case f.SQLState == otherColumns:
		return ErrChanged
	case f.Verdict == batch.Fatal:
		return s.survive(ctx, c, f, err)
	case onEdge && s.keepsApart(ctx, failed.edge, f):
		s.giveBack(true, c)
		return nil
	case f.SQLState == "42501":
		if unreadable, err := s.Source.Unreadable(ctx, s.on, c.parent); err != nil || unreadable != "" {
			f.Table, f.Message = c.parent.Label(), unreadable
			s.holdParent(c.parent, f)
			s.giveBack(true, c)
			return err
		}
	}
	if f.SQLState == "42501" && onEdge {
		f.Message = cmp.Or(s.lacking(ctx, failed.edge), f.Message)
	}
	switch {
	case c.parent.lives() && f.Lock():
		return s.postpone(ctx, c, f.Text())
	case (c.parent.duplicate(err) || c.parent.lives() && !onEdge && newChild(f)) && c.tries < mostTries:
		c.tries++
		s.doubles(c, err)
		s.giveBack(true, c)
		return nil
	case c.parent.lives():
		return s.attempt(ctx, c, f)
	case f.Verdict == batch.Unavailable:
		return s.deferHeld(ctx, c, f)
	case f.Verdict == batch.Hopeless && onEdge:
		s.hold(failed.edge, f)
		s.giveBack(true, c)
		return nil
	case f.Verdict == batch.Hopeless:
		return s.deferHeld(ctx, c, f)
	case f.Lock():
		return s.postpone(ctx, c, f.Text())
	case f.Verdict == batch.Timeout && onEdge && !failed.edge.indexed():
		f.Message = "takes longer than jobs.statement_timeout without an index: " + failed.edge.indexFix()
		s.hold(failed.edge, f)
		s.giveBack(true, c)
		return nil
	case len(c.tombstones) > 1:
		s.divide(c)
		return nil
	case f.SQLState == rowTooLarge:
		return s.deferHeld(ctx, c, f)
	case f.Verdict == batch.Timeout && onEdge:
		s.miss(failed.edge, f)
	}
	return s.attempt(ctx, c, f)
}

// newChild reports whether the completion met a row that has begun to refer to the key since its snapshot.
func newChild(f batch.Fault) bool { return f.SQLState == "23503" || f.SQLState == "23001" }

// try runs the direct statement and finishes the chunk. Edges that are held leave the tombstones for later.
func (s *session) try(ctx context.Context, c *chunk, edges []*Edge, why *batch.Fault, timeout time.Duration) error {
	var here []*Edge
	for _, e := range edges {
		if !e.remote() {
			here = append(here, e)
			continue
		}
		if err := s.drainRemote(ctx, c, e); err != nil {
			return err
		}
	}
	done, rows, err := s.direct(ctx, c, here, why == nil, s.short(timeout))
	if err != nil {
		return err
	}
	if s.Target > 0 {
		s.Sizes.learn(c.parent.Name, len(c.tombstones), s.on.Took(), s.directTarget(c.parent), mostKeys)
	}
	if why != nil {
		return s.leave(ctx, c, why)
	}
	return s.finish(ctx, c, done, rows)
}

// finish takes removed tombstones out of the chunk. The others have rows that something keeps or puts back.
func (s *session) finish(ctx context.Context, c *chunk, done Done, rows int64) error {
	if s.remove(ctx, c, done); len(c.tombstones) == 0 {
		return nil
	}
	again := mostTries
	if rows == 0 {
		again = 1
		if c.parent.lives() {
			again = mostConflicts // They may be of edges that had none a moment ago.
		}
	}
	if c.tries++; c.tries < again {
		s.giveBack(true, c)
		return nil
	}
	return s.attempt(ctx, c, batch.Fault{Table: c.parent.Label(), Message: KeptRows})
}

// KeptRows is the reason if rows are left that no lock explains.
const KeptRows = "children remain that no session has locked: a trigger or rule of a child table keeps them or puts them back"

// remove takes removed tombstones out of the chunk.
func (s *session) remove(ctx context.Context, c *chunk, done Done) {
	var gone, lives, left []Tombstone
	for _, t := range c.tombstones {
		switch living, removed := done[t.ID]; {
		case !removed:
			left = append(left, t)
		case living:
			lives = append(lives, t)
		default:
			gone = append(gone, t)
		}
	}
	s.mu.Lock()
	for _, t := range c.tombstones {
		delete(s.waits, t.ID)
	}
	s.Report.Removed(c.parent, gone, false)
	s.Report.Removed(c.parent, lives, true)
	if s.Report.Progress != nil {
		s.Report.Progress(ctx)
	}
	s.mu.Unlock()
	c.tombstones = left
}

// edges are those of the parent that can be drained now, and why not all of them can.
func (s *session) edges(c *chunk) (sound []*Edge, why *batch.Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.parent.held != nil {
		return nil, c.parent.held
	}
	untold := false
	for _, e := range c.parent.Edges {
		f := e.held
		switch remote := s.Remotes[e.Database]; {
		case e.Broken != "":
			f = &batch.Fault{Table: e.Child.Label(), Message: e.Broken, Verdict: batch.Unavailable}
		case e.remote() && (remote == nil || remote.Session == nil):
			away := s.away(e)
			f = &away
		case e.blocked.waits() && e.blocked.table:
			f = &batch.Fault{Table: e.Child.Label(), Message: e.blocked.reason, Verdict: batch.LockTimeout}
		}
		untold = untold || f != nil && e.Tells
		switch {
		case f == nil && untold && !e.Updates(): // Its native cascades could delete rows without their event.
		case f == nil:
			sound = append(sound, e)
		case why == nil || e.Broken != "" || why.Lock() && !f.Lock():
			why = f
		}
	}
	return sound, why
}

// leave postpones a chunk of which some edges cannot be drained now.
func (s *session) leave(ctx context.Context, c *chunk, why *batch.Fault) error {
	if why.Lock() {
		return s.postpone(ctx, c, why.Message)
	}
	return s.deferHeld(ctx, c, *why)
}

// miss notes that even a single key takes too long in an edge. After a few of them the edge is held.
func (p *Pass) miss(e *Edge, f batch.Fault) {
	p.mu.Lock()
	e.misses++
	over := e.misses >= mostMisses
	p.mu.Unlock()
	if over {
		p.hold(e, f)
	}
}

// lacking returns which right on an edge's table the role lacks.
func (s *session) lacking(ctx context.Context, e *Edge) string {
	if !e.remote() {
		return s.Source.Lacking(ctx, s.on, e)
	}
	s.remoteMu.Lock()
	defer s.remoteMu.Unlock()
	if remote := s.Remotes[e.Database]; remote != nil && remote.Session != nil {
		return s.Source.Lacking(ctx, remote.Session, e)
	}
	return ""
}

// holdParent leaves all tombstones of a parent alone for the rest of the pass.
func (p *Pass) holdParent(parent *Parent, f batch.Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f.Verdict = batch.Unavailable
	parent.held = &f
}

// tooLong notes that a direct statement was cut off: the next ones are smaller, and have both bounds.
func (s *session) tooLong(c *chunk) {
	s.Sizes.shrink(c.parent.Name, len(c.tombstones))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.both = true
}

// yield gives the chunk back, each key of it by itself: the small ones must not wait for the large one.
func (s *session) yield(c *chunk) error {
	if len(c.tombstones) == 1 {
		c.heavy = true
		s.giveBack(false, c)
		return nil
	}
	singles := make([]*chunk, len(c.tombstones))
	for i := range c.tombstones {
		singles[i] = &chunk{parent: c.parent, tombstones: c.tombstones[i : i+1], heavy: true}
	}
	s.giveBack(false, singles...)
	return nil
}

// requeue gives back a chunk that met another session of the pass. After a few times the pass continues with one session.
func (s *session) requeue(c *chunk) error {
	if c.own++; c.own >= mostOwn {
		s.mu.Lock()
		s.solo = true
		s.mu.Unlock()
	}
	s.giveBack(false, c)
	return nil
}

// ownSession reports whether the holder of a lock is a session of the same pass.
func (s *session) ownSession(holder string) bool {
	return s.started > 1 && holder != "" && strings.Contains(holder, "("+s.on.Name()+")")
}

// survive replaces a connection that was lost. The statement may be the cause: it crashes its server process, or a pooler
// cuts it. So the chunk is divided, and a key that loses the connection twice has an attempt.
func (s *session) survive(ctx context.Context, c *chunk, f batch.Fault, err error) error {
	if !s.on.Conn.IsClosed() || ctx.Err() != nil || s.ended() || s.Connect == nil {
		return err
	}
	next := s.Connect(ctx)
	if next == nil || next.Conn.Ping(ctx) != nil {
		s.giveBack(true, c)
		return fmt.Errorf("%w: %w", errNoConnection, err)
	}
	s.on.Conn = next.Conn
	f.Message, f.Verdict = batch.LostConnection+f.Message, batch.Row
	switch c.lost++; {
	case len(c.tombstones) > 1:
		s.divide(c)
	case c.lost < 2:
		s.giveBack(false, c)
	default:
		return s.attempt(ctx, c, f)
	}
	return nil
}
