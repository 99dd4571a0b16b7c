package drain

import (
	"context"
	"math"
	"time"

	"sexton/internal/batch"
	"sexton/internal/pace"
)

// connect returns another session, or nil. The caller holds p.mu.
func (p *Pass) connect(ctx context.Context) *batch.Session {
	if p.Connect == nil {
		return nil
	}
	return p.Connect(ctx)
}

// signal wakes the sessions that wait for a chunk. The caller holds p.mu.
func (p *Pass) signal() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// ended reports whether no further batch may start.
func (p *Pass) ended() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.endedLocked()
}

func (p *Pass) endedLocked() bool { return p.err != nil || p.Pace.Ended() }

// Open reports whether a pass that has ended left tombstones that are due now or, if they
// were deferred for a lock, soon.
func (p *Pass) Open() bool {
	for _, parent := range p.Parents {
		if parent.hasChunk() || parent.moreDue {
			return true
		}
	}
	return !p.queueEmpty || p.resumeAt.After(time.Now())
}

// Held returns why tombstones were last deferred for a lock, or "".
func (p *Pass) Held() string { return p.deferReason }

// Unfinished returns the keys that were partly drained in pieces when the pass ended.
func (p *Pass) Unfinished() map[*Parent][]Tombstone {
	left := map[*Parent][]Tombstone{}
	for _, parent := range p.Parents {
		for _, c := range parent.returned {
			if c.begun && len(c.tombstones) == 1 {
				left[parent] = append(left[parent], c.tombstones...)
			}
		}
	}
	return left
}

// target returns the time that one transaction should take now. It is shorter while other
// clients use the server.
func (p *Pass) target() time.Duration {
	p.paceMu.Lock()
	defer p.paceMu.Unlock()
	return p.Pace.Shortened(p.Target)
}

// withPace calls do, which may query the server over this session's connection. The
// session must be idle.
func (s *session) withPace(do func(r *pace.Run)) {
	if len(s.Remotes) > 0 {
		s.remoteMu.Lock()
		defer s.remoteMu.Unlock()
	}
	s.paceMu.Lock()
	defer s.paceMu.Unlock()
	s.Session.Conn = s.on.Conn
	do(s.Pace)
}

// awaitReplicas waits while a replica lags too much.
func (s *session) awaitReplicas(ctx context.Context) {
	s.withPace(func(r *pace.Run) { r.Await(ctx) })
}

// breathe pauses, so that other clients of the server get their share of the time. Only
// one session of the pass pauses at a time.
func (s *session) breathe(ctx context.Context, took time.Duration) {
	s.withPace(func(r *pace.Run) {
		r.Breathe(ctx, took)
		s.othersActive.Store(!r.Full())
	})
}

// unlimited is the result of rowsLeft for a pass without limits.
const unlimited = math.MaxInt64

// rowsLeft returns how many rows the pass may still change through an edge.
func (p *Pass) rowsLeft(e *Edge) int64 {
	if p.Left == nil {
		return unlimited
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.Left(e)
}

// reportChanged reports changed rows. Changed rows also end the edge's block and reset
// its count of timeouts.
func (p *Pass) reportChanged(ctx context.Context, c *chunk, e *Edge, rows int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if rows > 0 {
		e.blocked, e.timeouts = nil, 0
		p.Report.Changed(e, c.tombstones, rows)
		if c.recheck() {
			c.foundRows = true
			p.Report.Late(rows)
		}
	}
	if p.Report.Progress != nil {
		p.Report.Progress(ctx)
	}
}
