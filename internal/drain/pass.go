package drain

import (
	"context"
	"math"
	"sync"
	"time"

	"sexton/internal/batch"
	"sexton/internal/pace"
)

// connect opens another session. It returns nil if no connection is free. The caller
// holds p.mu.
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

// Open reports whether a pass that has ended left tombstones that are due now, or that
// are due soon because they were deferred for a lock.
func (p *Pass) Open() bool {
	for _, parent := range p.Parents {
		if parent.hasChunk() || parent.moreDue {
			return true
		}
	}
	return !p.queueEmpty || p.resumeAt.After(time.Now())
}

// Held returns the reason why tombstones were last deferred for a lock, or "".
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

// withPace calls do with the pass's pace. do may query the server over the session's
// connection, so the session must not have a transaction open.
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

// pause waits after a transaction, so that other clients of the server get their share of
// the time. Only one session of the pass waits at a time.
func (s *session) pause(ctx context.Context, took time.Duration) {
	s.withPace(func(r *pace.Run) {
		r.PauseAfterBatch(ctx, took)
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

// reportChanged reports changed rows of an edge. If there are any, it also ends the
// edge's block and resets its count of timeouts.
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

// firstKeys and firstRows are the sizes of transactions before a duration has been
// measured. mostKeys and mostRows are the maximum sizes.
const (
	firstKeys, mostKeys = 8, 5000
	firstRows, mostRows = 500, 50_000
)

// Sizes holds the sizes of chunks and pieces that the passes of one process have learned.
// The zero value is ready to use.
type Sizes struct {
	mu    sync.Mutex
	sizes map[string]*size
}

// size is the number of keys or rows that a statement changes in about the target time.
type size struct {
	n int
	// before and took are the size and duration of the last transaction. fixed is the
	// part of the duration that does not depend on the size.
	before      int
	took, fixed time.Duration
}

// get returns the number of keys or rows of the next transaction of that name: first, if
// no transaction was measured.
func (s *Sizes) get(name string, first int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sizeOf(name, first).n
}

// sizeOf returns the size of that name. A new size begins with first.
func (s *Sizes) sizeOf(name string, first int) *size {
	if s.sizes == nil {
		s.sizes = map[string]*size{}
	}
	if s.sizes[name] == nil {
		s.sizes[name] = &size{n: first}
	}
	return s.sizes[name]
}

// fixed returns the part of the duration of transactions with that name that does not
// depend on their size.
func (s *Sizes) fixed(name string) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sizeOf(name, firstKeys).fixed
}

// learn adjusts the size of that name after a transaction with n keys or rows.
func (s *Sizes) learn(name string, n int, took, target time.Duration, most int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	z := s.sizeOf(name, n)
	if n*2 < z.n {
		return // The last chunk of a queue is too short to learn from.
	}
	z.learn(n, took, target, most)
}

// learn scales the size to the target, by a factor of at most 2. If fewer keys took
// almost as long as more keys did before, most of the time is a fixed cost, such as the
// network or a statement trigger. The fixed cost is then subtracted. Otherwise chunks
// would shrink to a single key without becoming faster.
func (z *size) learn(n int, took, target time.Duration, most int) {
	z.fixed = min(z.fixed, took*9/10)
	if took-z.fixed > target && z.before > n && float64(took) > float64(z.took)*(0.6+0.4*float64(n)/float64(z.before)) {
		z.fixed = took * 9 / 10
		n = max(n, z.before)
	}
	z.before, z.took = n, took
	factor := float64(target) / float64(max(took-z.fixed, time.Microsecond))
	z.n = max(1, min(most, int(math.Round(float64(n)*min(2, max(0.5, factor))))))
}

// shrink reduces the size of that name to at most half of n after a transaction with n
// keys or rows timed out.
func (s *Sizes) shrink(name string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	z := s.sizeOf(name, n)
	z.n = max(1, min(z.n, n/2))
}
