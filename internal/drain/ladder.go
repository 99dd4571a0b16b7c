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
	// manyEdges is the number of edges above which a chunk is first checked for edges
	// that have rows.
	manyEdges = 10
	// mostTries limits how often one pass retries a chunk whose rows reappear.
	mostTries = 20
	// mostOwn is the number of lock conflicts between sessions of the pass after which
	// the pass continues with one session.
	mostOwn = 3
	// mostConflicts limits how often a direct statement is retried after a serialization
	// failure.
	mostConflicts = 5
	// mostMisses is the number of consecutive single keys that may time out in an edge
	// before the edge is held.
	mostMisses = 3
)

// ErrYield stops the work on a chunk because other chunks wait or the pass ends.
var ErrYield = errors.New("yield")

// errTooMany is returned if several keys together have more rows than the fixed limit of
// a statement.
var errTooMany = errors.New("more rows than a statement may change")

// errNoConnection ends a session whose connection was lost and could not be replaced.
var errNoConnection = errors.New("no connection in place of a lost one")

// clear drains one chunk. It first tries the direct statements, then changes rows in
// pieces, then tries the direct statements again for the rows that are left. It returns
// an error only if the session cannot continue.
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
		case c.parent.lives() || f.SQLState != "42501" && f.Verdict != batch.Timeout:
			return s.climb(ctx, c, err)
		default: // A statement on the edge itself shows which one lacks a right, or an index.
		}
	}
	if at := slices.IndexFunc(edges, func(e *Edge) bool { return e.Refusal != "" }); at >= 0 {
		return s.attempt(ctx, c, batch.Fault{Table: edges[at].Child.Label(), Message: edges[at].Refusal})
	}

	// Direct statements, unless they would time out or wait for a lock.
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

	// Pieces of each edge. An error on one edge does not stop the others.
	c.alone = len(c.tombstones) == 1
	var failed error
	eventsPending, locked := false, ""
	for _, e := range edges {
		if eventsPending && !e.Updates() {
			continue // ON DELETE CASCADE could delete rows of the earlier edge without their event.
		}
		left, err := s.pieces(ctx, c, e)
		eventsPending = eventsPending || e.EmitsEvent && (left || err != nil)
		switch f := batch.Judge(err); {
		case err == nil:
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
	if failed != nil {
		return s.climb(ctx, c, failed)
	}

	// Direct statements again, for the rows that are left.
	all, why := s.edges(c)
	if why != nil {
		return s.leave(ctx, c, why)
	}
	if !c.parent.lives() {
		edges = all
	}
	return s.last(ctx, c, edges)
}

// duplicate reports whether err means that a row of one of the parent's edges cannot be
// moved because the target has an equal row.
func (p *Parent) duplicate(err error) bool {
	return slices.ContainsFunc(p.Edges, func(e *Edge) bool { return e.duplicate(err) })
}

// doubles turns on Edge.Double for each edge that err names, so that duplicates are
// changed before further moves. It returns false if no edge changed: it has no Double, or
// the move failed although Double ran.
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

// doubled reports whether Edge.Double runs before moves of the edge.
func (p *Pass) doubled(e *Edge) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return e.doubled
}

// tree returns the session that Parent.Tree and Edge.Tree use.
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
			s.on.Plain = false // Tree statements depend on planner settings.
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

// last runs the direct statements with the full statement timeout. If rows are locked, it
// waits for them edge by edge and then runs the direct statements once more.
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

// tryAgain calls try with the full statement timeout and retries it after serialization
// failures and deadlocks.
func (s *session) tryAgain(ctx context.Context, c *chunk, edges []*Edge) (err error) {
	for range mostConflicts {
		err = s.try(ctx, c, edges, nil, s.on.Limits.StatementTimeout)
		if batch.Judge(err).Verdict != batch.Conflict || s.ended() {
			return err
		}
	}
	return err
}

// completeFinished removes those tombstones of a chunk that have no rows left, while rows
// of the others are locked. The statement cannot read rows of another database.
func (s *session) completeFinished(ctx context.Context, c *chunk) error {
	if len(c.tombstones) == 1 || slices.ContainsFunc(c.parent.Edges, (*Edge).remote) {
		return nil
	}
	done := Done{}
	_, err := s.run(ctx, s.short(s.on.Limits.StatementTimeout), s.Source.Complete(c.parent, c.tombstones, true, &done))
	switch f := batch.Judge(err); {
	case err == nil:
		s.remove(ctx, c, done)
	case f.Verdict != batch.Fatal:
		return nil // The caller defers all of them.
	}
	return err
}

// tableHolder returns why no row of the edges can be read or changed: the session that
// has locked one of the tables or, if it cannot be found, the lock error.
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

// climb handles an error. Depending on the error it ends the session, holds the edge,
// divides the chunk, gives it back, defers it, or records an attempt if the chunk has a single key.
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
	case errors.Is(err, ErrYield):
		return s.yield(c)
	case errors.Is(err, errTooMany):
		s.divide(c)
		return nil
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

// newChild reports whether f is a foreign key violation: a row began to refer to the key
// after the snapshot of the completion.
func newChild(f batch.Fault) bool { return f.SQLState == "23503" || f.SQLState == "23001" }

// try runs the direct statements and finishes the chunk. If why is set, some edges cannot
// be drained now. The tombstones are then kept and deferred. Edges in other databases are
// drained first.
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

// finish drops removed tombstones from the chunk. A tombstone that is left has rows that
// something keeps or restores. It is retried, and after too many tries it has an attempt.
func (s *session) finish(ctx context.Context, c *chunk, done Done, rows int64) error {
	if s.remove(ctx, c, done); len(c.tombstones) == 0 {
		return nil
	}
	again := mostTries
	if rows == 0 {
		again = 1
		if c.parent.lives() {
			again = mostConflicts // The rows may be new ones of an edge that find left out.
		}
	}
	if c.tries++; c.tries < again {
		s.giveBack(true, c)
		return nil
	}
	return s.attempt(ctx, c, batch.Fault{Table: c.parent.Label(), Message: KeptRows})
}

// KeptRows is the error message if rows are left although no session has locked them.
const KeptRows = "children remain that no session has locked: a trigger or rule of a child table keeps them or puts them back"

// remove drops removed tombstones from the chunk and reports them.
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

// edges returns the edges of the parent that can be drained now. If some cannot, why is
// the reason.
func (s *session) edges(c *chunk) (sound []*Edge, why *batch.Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.parent.held != nil {
		return nil, c.parent.held
	}
	eventsPending := false
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
		eventsPending = eventsPending || f != nil && e.EmitsEvent
		switch {
		case f == nil && eventsPending && !e.Updates(): // ON DELETE CASCADE could delete rows without their event.
		case f == nil:
			sound = append(sound, e)
		case why == nil || e.Broken != "" || why.Lock() && !f.Lock():
			why = f
		}
	}
	return sound, why
}

// leave defers a chunk that has edges which cannot be drained now.
func (s *session) leave(ctx context.Context, c *chunk, why *batch.Fault) error {
	if why.Lock() {
		return s.postpone(ctx, c, why.Message)
	}
	return s.deferHeld(ctx, c, *why)
}

// miss counts a timeout of a single key in an edge. After mostMisses of them in a row,
// the edge is held.
func (p *Pass) miss(e *Edge, f batch.Fault) {
	p.mu.Lock()
	e.misses++
	over := e.misses >= mostMisses
	p.mu.Unlock()
	if over {
		p.hold(e, f)
	}
}

// lacking returns which privilege on the edge's table the role lacks, or "".
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

// holdParent stops the work on all tombstones of a parent for the rest of the pass.
func (p *Pass) holdParent(parent *Parent, f batch.Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f.Verdict = batch.Unavailable
	parent.held = &f
}

// tooLong makes later chunks smaller after a direct statement timed out. It also adds the
// upper bound to direct statements, which rules out a sequential scan.
func (s *session) tooLong(c *chunk) {
	s.Sizes.shrink(c.parent.Name, len(c.tombstones))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.both = true
}

// yield returns each key of the chunk to the queue as a chunk of its own, so that small
// keys do not wait for large ones.
func (s *session) yield(c *chunk) error {
	if len(c.tombstones) == 1 {
		c.heavy = true
		s.giveBack(false, c)
		return nil
	}
	singles := make([]*chunk, len(c.tombstones))
	for i := range c.tombstones {
		singles[i] = &chunk{parent: c.parent, tombstones: c.tombstones[i : i+1], heavy: true, found: c.found}
	}
	s.giveBack(false, singles...)
	return nil
}

// requeue returns a chunk to the queue that waited for another session of the pass. After
// mostOwn times the pass continues with one session.
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
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.started > 1 && holder != "" && strings.Contains(holder, "("+s.on.Name()+")")
}

// survive replaces a lost connection. The statement may be the cause, because it crashes
// its server process or a pooler cuts it off. So the chunk is divided, and a single key
// that loses the connection twice has an attempt.
func (s *session) survive(ctx context.Context, c *chunk, f batch.Fault, err error) error {
	if !s.on.Conn.IsClosed() || ctx.Err() != nil || s.ended() {
		return err
	}
	s.mu.Lock()
	next := s.connect(ctx)
	s.mu.Unlock()
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
