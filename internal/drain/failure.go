package drain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"sexton/internal/batch"
)

// ErrYield is returned if the work on a chunk stops early, because other chunks wait or
// the pass ends.
var ErrYield = errors.New("yield")

// errNoConnection is the error of a session whose connection was lost and could not be
// replaced.
var errNoConnection = errors.New("could not reconnect after a lost connection")

const (
	// mostTimeouts is the number of single keys whose statements may time out in a row
	// before the pass stops the work on their edge.
	mostTimeouts = 3
	// heldFor is the time for which tombstones are deferred that cannot be finished until
	// an operator has fixed the cause.
	heldFor = time.Minute
)

// Errors with these SQLSTATEs are handled differently from their class. The function
// undo_set raises otherColumns if the table's columns have changed, rowTooLarge if a row
// is too large to save, and rowsUnfit if rows cannot be saved by a statement that reads
// them before it deletes them. Postgres raises notSupported for a statement that saves
// rows of a table with rules.
const (
	noPrivilege  = "42501"
	otherColumns = "SX005"
	rowTooLarge  = "SX006"
	rowsUnfit    = "SX008"
	notSupported = "0A000"
)

// handleError handles the error of a chunk. Depending on the error it ends the session,
// stops the work on the edge, divides the chunk or returns it to the queue. It may also
// defer the chunk or, if the chunk has a single key, record an attempt.
func (s *session) handleError(ctx context.Context, c *chunk, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrChanged):
		return err
	case errors.Is(err, ErrYield):
		s.splitIntoKeys(c)
		return nil
	case errors.Is(err, errTooMany):
		s.divide(c)
		return nil
	}
	f, table, e := batch.Judge(err), c.parent.Label(), (*Edge)(nil)
	if failed, ok := errors.AsType[*edgeError](err); ok {
		e, table = failed.edge, failed.edge.Child.Label()
	}
	f.Table = cmp.Or(f.Table, table)
	switch {
	case f.SQLState == otherColumns:
		return ErrChanged
	case f.Verdict == batch.Fatal:
		return s.reconnect(ctx, c, f, err)
	case e != nil && s.useReturning(c, e, f):
		s.returnFirst(c)
		return nil
	case f.SQLState == noPrivilege:
		why, err := s.Source.Unreadable(ctx, s.on, c.parent)
		if err != nil || why != "" {
			f.Table, f.Message, f.Verdict = c.parent.Label(), why, batch.Unavailable
			s.holdParent(c.parent, f)
			s.returnFirst(c)
			return err
		}
		if e != nil {
			f.Message = cmp.Or(s.missingPrivilege(ctx, e), f.Message)
		}
	}
	if c.tries < mostTries && (c.parent.isDuplicate(err) || c.parent.lives() && e == nil && isNewChild(f)) {
		c.tries++
		s.markDuplicatesFirst(c, err)
		s.returnFirst(c)
		return nil
	}
	return s.handleFault(ctx, c, e, f)
}

// isNewChild reports whether f is a foreign key violation: a row began to refer to the
// parent's row after the snapshot of the statement that deletes it.
func isNewChild(f batch.Fault) bool { return f.SQLState == "23503" || f.SQLState == "23001" }

// handleFault handles a fault that the server reported. e is the edge of the failed
// statement, or nil. Depending on the fault it defers the chunk, stops the work on the
// edge, divides the chunk, or records an attempt. A fault that a row may cause, for
// example in a trigger, divides the chunk until the failing key is isolated. A fault of a
// living parent's key always counts as an attempt, unless it is a lock conflict.
func (s *session) handleFault(ctx context.Context, c *chunk, e *Edge, f batch.Fault) error {
	switch {
	case f.Lock():
		return s.postpone(ctx, c, f.Text())
	case c.parent.lives():
		return s.recordAttempt(ctx, c, f)
	case f.Verdict == batch.Unavailable, f.Verdict == batch.Hopeless && e == nil:
		return s.deferHeld(ctx, c, f)
	case f.Verdict == batch.Hopeless:
		if e.Keep != nil && f.SQLState == notSupported {
			f.Message += " (undo cannot keep rows of a table with rules)"
		}
		s.hold(e, f)
		s.returnFirst(c)
		return nil
	case f.Verdict == batch.Timeout && e != nil && !e.indexed():
		f.Message = "takes longer than jobs.statement_timeout without an index: " + e.CreateIndex[e.Leaf.OID]
		s.hold(e, f)
		s.returnFirst(c)
		return nil
	case len(c.tombstones) > 1:
		s.divide(c)
		return nil
	case f.SQLState == rowTooLarge:
		return s.deferHeld(ctx, c, f)
	case f.Verdict == batch.Timeout && e != nil:
		s.countTimeout(e, f)
	}
	return s.recordAttempt(ctx, c, f)
}

// reconnect replaces a lost connection. The statement may be the cause, because it
// crashes its server process or a pooler cuts it off. So the chunk is divided. A single
// key whose statements lose two connections has an attempt.
func (s *session) reconnect(ctx context.Context, c *chunk, f batch.Fault, err error) error {
	if !s.on.Conn.IsClosed() || ctx.Err() != nil || s.ended() {
		return err
	}
	s.mu.Lock()
	next := s.connect(ctx)
	s.mu.Unlock()
	if next == nil || next.Conn.Ping(ctx) != nil {
		s.returnFirst(c)
		return fmt.Errorf("%w: %w", errNoConnection, err)
	}
	s.on.Conn = next.Conn
	f.Message, f.Verdict = batch.LostConnection+f.Message, batch.Row
	switch c.lostConns++; {
	case len(c.tombstones) > 1:
		s.divide(c)
	case c.lostConns < 2:
		s.returnLast(c)
	default:
		return s.recordAttempt(ctx, c, f)
	}
	return nil
}

// useReturning makes an edge save its rows by RETURNING, if the rows did not fit a
// statement that reads them before it deletes them. It reports whether the chunk should
// be retried.
func (s *session) useReturning(c *chunk, e *Edge, f batch.Fault) bool {
	if e.Keep == nil || f.SQLState != rowsUnfit {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	*e.UseReturning = true
	// UseReturning may be set already: another session of the pass may have set it after
	// this statement was built. So count the tries.
	c.tries++
	return c.tries < mostTries
}

// missingPrivilege returns the privilege on the edge's table that the role lacks, or "".
func (s *session) missingPrivilege(ctx context.Context, e *Edge) string {
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

// hold stops the work on an edge for the rest of the pass.
func (p *Pass) hold(e *Edge, f batch.Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e.held == nil {
		e.held = &f
	}
}

// holdParent stops the work on all tombstones of a parent for the rest of the pass.
func (p *Pass) holdParent(parent *Parent, f batch.Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	parent.held = &f
}

// countTimeout counts a timeout of a single key in an edge. After mostTimeouts in a row,
// it stops the work on the edge.
func (p *Pass) countTimeout(e *Edge, f batch.Fault) {
	p.mu.Lock()
	e.timeouts++
	tooMany := e.timeouts >= mostTimeouts
	p.mu.Unlock()
	if tooMany {
		p.hold(e, f)
	}
}

// deferChunk defers a chunk because of an obstacle on one of its edges.
func (s *session) deferChunk(ctx context.Context, c *chunk, obstacle batch.Fault) error {
	if obstacle.Lock() {
		return s.postpone(ctx, c, obstacle.Message)
	}
	return s.deferHeld(ctx, c, obstacle)
}

// deferHeld defers tombstones that cannot be finished until an operator has fixed the
// cause. It records no attempt and reports each cause once.
func (s *session) deferHeld(ctx context.Context, c *chunk, f batch.Fault) error {
	f.Verdict = batch.Unavailable
	s.mu.Lock()
	if !s.reported[f.Text()] {
		s.reported[f.Text()] = true
		s.Report.Failed(f)
	}
	s.mu.Unlock()
	_, err := s.recordFailure(ctx, c, f, heldFor)
	return err
}

// recordAttempt records a failed attempt for the chunk's tombstones. None of them is
// tried again in this pass. A failed direct transaction is rolled back, so it changes no
// children in the other edges either. If none of the tombstones exists any more, there is
// no failure: a connection was lost after the COMMIT that removed them.
func (s *session) recordAttempt(ctx context.Context, c *chunk, f batch.Fault) error {
	s.mu.Lock()
	for _, t := range c.tombstones {
		s.attempted[t.ID] = true
	}
	s.mu.Unlock()
	recorded, err := s.recordFailure(ctx, c, f, 0)
	if recorded > 0 {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.Report.Failed(f)
	}
	return err
}

func (s *session) recordFailure(ctx context.Context, c *chunk, f batch.Fault,
	after time.Duration,
) (recorded int64, _ error) {
	recorded, err := s.Source.Fail(ctx, s.on, c.parent, c.tombstones, f, after)
	if err != nil {
		return 0, fmt.Errorf("record failed attempts: %w", err)
	}
	return recorded, nil
}
