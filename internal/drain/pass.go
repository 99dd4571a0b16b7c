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

// ErrChanged ends a pass whose tables are no longer as they were when its edges were bound to them.
var ErrChanged = errors.New("tables have changed since definitions were bound to them")

// Remote is another database with children. What is changed there is committed, durably, before the tombstones go.
type Remote struct {
	// Session is nil if the database cannot be reached. Err is the reason, Down for how long.
	Session *batch.Session
	Err     error
	Down    time.Duration
}

// Pass drains the edges of parents whose rows were deleted. All of its sessions work under one lease.
type Pass struct {
	Source  Source
	Parents []*Parent
	// Session is the first session. Connections is how many may be used at once. Connect returns another one, or nil.
	Session     *batch.Session
	Connections int
	Connect     func(ctx context.Context) *batch.Session
	Remotes     map[string]*Remote
	// Target is the time that one transaction should take. Without one, sizes are fixed: Chunk tombstones, and the edges' limits.
	Target time.Duration
	Chunk  int
	Sizes  *Sizes
	// Left is how many rows the pass may still change through an edge.
	Left   func(e *Edge) int64
	Pace   *pace.Run
	Report Report

	mu       sync.Mutex
	changed  chan struct{} // closed when a session has given something back
	active   int           // sessions that work on a chunk
	started  int
	alive    int
	solo     bool // sessions of the pass were in each other's way
	loadedAt time.Time
	rewound  bool                    // all queues were read from their beginning and had nothing new
	rechecks bool                    // marked tombstones may be loaded
	resume   time.Time               // the last postponed tombstone is due again
	waits    map[int64]time.Duration // by tombstone, the last time that it was postponed for a lock
	reported map[string]bool         // reasons of held edges
	tried    map[int64]bool          // tombstones that have had an attempt in this pass
	both     bool                    // direct statements use both bounds, after the first timeout
	held     string
	err      error

	// paceMu guards Pace and the connection that it looks with, turn lets one session work while others use the server.
	paceMu   sync.Mutex
	turn     sync.Mutex
	beside   atomic.Bool
	remoteMu sync.Mutex

	sessions sync.WaitGroup
}

// Run works until no due tombstone is left, the pace ends it, or ctx ends. It returns an error only if the pass cannot go on.
func (p *Pass) Run(ctx context.Context) error {
	p.changed, p.waits, p.tried = make(chan struct{}), map[int64]time.Duration{}, map[int64]bool{}
	p.reported = map[string]bool{}
	if p.Sizes == nil {
		p.Sizes = &Sizes{}
	}
	for _, parent := range p.Parents {
		parent.after = Beginning()
	}
	// Session itself belongs to the throttle, which looks over whatever connection is idle.
	own := p.Session
	p.start(ctx, &batch.Session{Conn: own.Conn, Names: own.Names, Fence: own.Fence, Limits: own.Limits, Slot: own.Slot, Plain: own.Plain, Kept: own.Kept})
	p.sessions.Wait()
	return p.err
}

// start runs a session of its own. A panic in it ends the pass and not the process.
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

// fail ends the pass with the first error.
func (p *Pass) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil || errors.Is(err, lease.ErrLost) {
		p.err = err
	}
	p.signal()
}

// signal wakes sessions that wait for something to do.
func (p *Pass) signal() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// ended reports whether no further batch may begin.
func (p *Pass) ended() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.over()
}

func (p *Pass) over() bool { return p.err != nil || p.Pace.Ended() }

// Open reports whether a pass that has ended left work that was due.
func (p *Pass) Open() bool {
	for _, parent := range p.Parents {
		if len(parent.loaded)+len(parent.waiting) > 0 || parent.more {
			return true
		}
	}
	return !p.rewound || p.resume.After(time.Now())
}

// Held is why tombstones were postponed because of others, or "".
func (p *Pass) Held() string { return p.held }

// Unfinished are tombstones that were alone in their chunk when the pass ended, and not through.
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

// hold leaves an edge alone for the rest of the pass.
func (p *Pass) hold(e *Edge, f batch.Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e.held == nil {
		e.held = &f
	}
}

// lost notes that another database cannot be reached any more.
func (p *Pass) lost(database string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	remote := p.Remotes[database]
	remote.Session, remote.Err = nil, err
	if p.Report.Lost != nil {
		p.Report.Lost(database, err)
	}
}

// target is the time that one transaction should take now. It is shorter while others use the server.
func (p *Pass) target() time.Duration {
	p.paceMu.Lock()
	defer p.paceMu.Unlock()
	return p.Pace.Beside(pace.Steer{Target: p.Target}).Target
}

// pace runs do, which looks at the server over the connections of a session that is idle.
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

// awaitReplicas waits as long as a replica is too far behind.
func (s *session) awaitReplicas(ctx context.Context) { s.pace(func(r *pace.Run) { r.Await(ctx) }) }

// breathe leaves other sessions of the server their share of the time. The pauses of all sessions are one after the other.
func (s *session) breathe(ctx context.Context, took time.Duration) {
	s.pace(func(r *pace.Run) {
		r.Breathe(ctx, took, 1)
		s.beside.Store(!r.Full())
	})
}

// unlimited is the number of rows that a pass without limits may change.
const unlimited = math.MaxInt64

// left is how many rows the pass may still change through an edge.
func (p *Pass) left(e *Edge) int64 {
	if p.Left == nil {
		return unlimited
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.Left(e)
}

// count notes rows that were changed.
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
