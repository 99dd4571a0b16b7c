package drain

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"sexton/internal/batch"
	"sexton/internal/lease"
	"sexton/internal/pace"
)

// ErrChanged ends a pass if a table has changed since its edges were resolved.
var ErrChanged = errors.New("tables have changed since definitions were bound to them")

// Remote is another database that has children. Changes there are committed durably
// before the tombstones are removed.
type Remote struct {
	// Session is nil if the database is unreachable. Err is then the reason, and Down is
	// how long it has been unreachable.
	Session *batch.Session
	Err     error
	Down    time.Duration
}

// Pass drains the edges of parents whose rows were deleted. All its sessions work under
// one lease.
type Pass struct {
	Source  Source
	Parents []*Parent
	// Session is the first session. Connections is the maximum number of sessions.
	// Connect opens another one, or returns nil if no connection is free.
	Session     *batch.Session
	Connections int
	Connect     func(ctx context.Context) *batch.Session
	Remotes     map[string]*Remote
	// Target is the time that one transaction should take. If it is 0, sizes are fixed:
	// Chunk tombstones and the limits of the edges.
	Target time.Duration
	Chunk  int
	Sizes  *Sizes
	// Left returns how many rows the pass may still change through an edge. If it is nil,
	// there is no limit.
	Left   func(e *Edge) int64
	Pace   *pace.Run
	Report Report

	mu       sync.Mutex
	changed  chan struct{} // closed by signal
	active   int           // number of sessions that work on a chunk
	started  int
	alive    int
	solo     bool // only the first session continues: they locked rows of each other
	loadedAt time.Time
	rewound  bool                    // the last load read all queues from the start and found nothing
	rechecks bool                    // tombstones marked for a recheck may be due
	resume   time.Time               // when the last deferred tombstone is due again
	waits    map[int64]time.Duration // by tombstone ID, for how long it was last deferred for a lock
	reported map[string]bool         // reasons of held edges that were reported
	tried    map[int64]bool          // IDs of tombstones that had an attempt in this pass
	both     bool                    // direct statements use both bounds: one of them has timed out
	held     string
	err      error

	// paceMu guards Pace and the connection that it queries. While othersActive is set, other
	// clients use the server, and a session holds turn during each transaction, so that
	// only one runs at a time. remoteMu guards the sessions of Remotes.
	paceMu       sync.Mutex
	turn         sync.Mutex
	othersActive atomic.Bool
	remoteMu     sync.Mutex

	sessions sync.WaitGroup
}

// Run processes tombstones until none is due, the time of Pace is used up, or ctx ends.
// It returns an error only if the pass cannot continue.
func (p *Pass) Run(ctx context.Context) error {
	p.changed, p.waits, p.tried = make(chan struct{}), map[int64]time.Duration{}, map[int64]bool{}
	p.reported = map[string]bool{}
	if p.Sizes == nil {
		p.Sizes = &Sizes{}
	}
	for _, parent := range p.Parents {
		parent.after = Beginning()
	}
	// Pace queries the server over Session, whose connection s.pace replaces. So the
	// first session gets a copy.
	own := p.Session
	p.start(ctx, &batch.Session{Conn: own.Conn, Names: own.Names, Fence: own.Fence, Limits: own.Limits, Slot: own.Slot, Plain: own.Plain, Kept: own.Kept})
	p.sessions.Wait()
	return p.err
}

// start runs a session in its own goroutine. A panic in it ends the pass and not the
// process.
func (p *Pass) start(ctx context.Context, on *batch.Session) {
	s := &session{Pass: p, on: on, first: p.started == 0}
	p.started++
	p.alive++
	p.sessions.Go(func() {
		defer func() {
			if r := recover(); r != nil {
				p.fail(fmt.Errorf("panic: %v\n\n%s", r, debug.Stack()))
			}
		}()
		if err := s.work(ctx); err != nil {
			p.fail(err)
		}
	})
}

// connect returns another session that plans statements as the first one does, or nil. The
// caller holds p.mu.
func (p *Pass) connect(ctx context.Context) *batch.Session {
	if p.Connect == nil {
		return nil
	}
	on := p.Connect(ctx)
	if on != nil {
		on.Plain = p.Session.Plain
	}
	return on
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

// signal wakes the sessions that wait for a chunk. The caller holds p.mu.
func (p *Pass) signal() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// ended reports whether no further batch may start.
func (p *Pass) ended() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.over()
}

func (p *Pass) over() bool { return p.err != nil || p.Pace.Ended() }

// Open reports whether a pass that has ended left due tombstones.
func (p *Pass) Open() bool {
	for _, parent := range p.Parents {
		if len(parent.loaded)+len(parent.waiting) > 0 || parent.more {
			return true
		}
	}
	return !p.rewound || p.resume.After(time.Now())
}

// Held returns why tombstones were last deferred for a lock, or "".
func (p *Pass) Held() string { return p.held }

// Unfinished returns the keys that were partly drained in pieces when the pass ended.
func (p *Pass) Unfinished() map[*Parent][]Tombstone {
	left := map[*Parent][]Tombstone{}
	for _, parent := range p.Parents {
		for _, c := range parent.waiting {
			if c.alone && len(c.tombstones) == 1 {
				left[parent] = append(left[parent], c.tombstones...)
			}
		}
	}
	return left
}

// hold stops the work on an edge for the rest of the pass.
func (p *Pass) hold(e *Edge, f batch.Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e.held == nil {
		e.held = &f
	}
}

// lost marks another database as unreachable.
func (p *Pass) lost(database string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	remote := p.Remotes[database]
	remote.Session, remote.Err = nil, err
	if p.Report.Lost != nil {
		p.Report.Lost(database, err)
	}
}

// target returns the time that one transaction should take now. It is shorter while other
// clients use the server.
func (p *Pass) target() time.Duration {
	p.paceMu.Lock()
	defer p.paceMu.Unlock()
	return p.Pace.Shortened(p.Target)
}

// pace calls do, which may query the server over the connection of this idle session.
func (s *session) pace(do func(r *pace.Run)) {
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
func (s *session) awaitReplicas(ctx context.Context) { s.pace(func(r *pace.Run) { r.Await(ctx) }) }

// breathe pauses, so that other clients of the server get their share of the time. Only
// one session of the pass pauses at a time.
func (s *session) breathe(ctx context.Context, took time.Duration) {
	s.pace(func(r *pace.Run) {
		r.Breathe(ctx, took)
		s.othersActive.Store(!r.Full())
	})
}

// unlimited is the value of left for a pass without limits.
const unlimited = math.MaxInt64

// left returns how many rows the pass may still change through an edge.
func (p *Pass) left(e *Edge) int64 {
	if p.Left == nil {
		return unlimited
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.Left(e)
}

// count reports changed rows. It also ends the block and the timeouts of the edge.
func (p *Pass) count(ctx context.Context, c *chunk, e *Edge, rows int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if rows > 0 {
		e.blocked, e.misses = nil, 0
		p.Report.Changed(e, c.tombstones, rows)
		if c.recheck() {
			c.found = true
			p.Report.Late(rows)
		}
	}
	if p.Report.Progress != nil {
		p.Report.Progress(ctx)
	}
}
