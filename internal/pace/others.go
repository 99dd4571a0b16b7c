package pace

import (
	"context"
	_ "embed"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/batch"
	"sexton/internal/database"
	"sexton/internal/pgcatalog"
)

// ClearFor is how long the answer that no replica is too far behind serves the passes
// that come after: as long as it serves the pass that asked.
const ClearFor = time.Second

// Others makes one pass wait for others, and logs what it waits for, once for each.
type Others struct {
	targets []*watchedTarget
	limits  ReplicaLimits
	log     *slog.Logger
	memory  *OthersMemory
	blocker string
}

// Target is one database that a pass writes to.
type Target struct {
	DB      database.Database
	Session *batch.Session
}

type watchedTarget struct {
	Target

	// blind is set when the replicas could not be asked: the rest of the pass goes on
	// without.
	blind   bool
	replica string
}

// OthersMemory keeps what passes of one process know of replicas, and of the others on a
// server. The zero value is ready to use.
type OthersMemory struct {
	mu sync.Mutex
	// neighbours are by database.
	neighbours map[string]*serverNeighbours
}

// NewOthers returns the throttle of a pass, whose own target is the first.
func NewOthers(log *slog.Logger, memory *OthersMemory, limits ReplicaLimits, targets ...Target) *Others {
	t := &Others{limits: limits, log: log, memory: memory}
	for _, one := range targets {
		t.targets = append(t.targets, &watchedTarget{Target: one})
	}
	return t
}

// For returns the throttle of a run. A duty of 0 follows the load of the server. Without
// limits for replicas it does not wait for them.
func (t *Others) For(duty float64) Throttle {
	run := Throttle{Share: t.Share(duty), Blocker: t.Blocker}
	if t.limits.On() {
		run.Hold = t.Hold
	}
	return run
}

// Hold says which replica is too far behind. Where that cannot be told, the pass does not
// wait.
func (t *Others) Hold(ctx context.Context) string {
	for _, at := range t.targets {
		if reason := t.holdFor(ctx, at); reason != "" {
			return reason
		}
	}
	return ""
}

func (t *Others) holdFor(ctx context.Context, at *watchedTarget) string {
	if at.blind || t.memory.ClearSince(at.DB.Name) < ClearFor {
		return ""
	}
	// On the pass's own connection, which is idle between its batches: another one would
	// have to be opened for this alone.
	replicas, err := ReadReplicas(ctx, at.Session.Conn)
	if err != nil && ctx.Err() != nil {
		return "" // The pass is asked to stop.
	}
	if err != nil {
		at.blind = true
		if !errors.Is(err, ErrReplicasHidden) || t.memory.firstHidden(at.DB.Name) {
			t.log.WarnContext(ctx, "pass does not wait for replicas", "of", at.DB.Name, "error", err)
		}
		return ""
	}
	worst, behind := t.limits.Worst(replicas)
	if !behind {
		at.replica = ""
		t.memory.NoteClear(at.DB.Name, time.Now())
		return ""
	}
	reason := t.limits.Describe(worst)
	if worst.Name != at.replica {
		at.replica = worst.Name
		t.log.InfoContext(ctx, "pass waits", "reason", reason)
	}
	return reason
}

// ClearSince is how long ago no replica of a database was too far behind.
func (m *OthersMemory) ClearSince(name string) time.Duration {
	n := m.on(name)
	n.mu.Lock()
	defer n.mu.Unlock()
	return time.Since(n.clear)
}

// NoteClear notes that no replica of a database was too far behind at that time.
func (m *OthersMemory) NoteClear(name string, at time.Time) {
	n := m.on(name)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.clear = at
}

// firstHidden reports whether it is the first time in this process that a database's
// replicas hide their state.
func (m *OthersMemory) firstHidden(name string) bool {
	n := m.on(name)
	n.mu.Lock()
	defer n.mu.Unlock()
	known := n.hidden
	n.hidden = true
	return !known
}

// Blocker names the session that a batch in a database waits for; without a name that is
// the pass's own.
func (t *Others) Blocker(ctx context.Context, name string) string {
	known := slices.IndexFunc(t.targets, func(at *watchedTarget) bool { return name == "" || at.DB.Name == name })
	if known < 0 {
		return ""
	}
	at := t.targets[known]
	reason, err := at.Session.Blocker(ctx, at.DB.Pool)
	if err != nil { // The batch has ended, or will say itself what is wrong with the server.
		t.log.DebugContext(ctx, "blocker is unknown", "error", err)
		return ""
	}
	if reason != "" && reason != t.blocker && ctx.Err() == nil {
		t.blocker = reason
		t.log.InfoContext(ctx, "pass waits", "reason", reason)
	}
	return reason
}

//go:embed queries/neighbours.sql
var neighboursSQL string

const (
	// Two looks are lookEvery apart, or costly times as long as the last one took, but no
	// more than lookSeldom.
	lookEvery, lookSeldom = 50 * time.Millisecond, time.Second
	costly                = 20
	// Each refused query is a line in the server's log.
	lookAgain = time.Minute
)

// serverNeighbours are the others on one database's server, and its replicas. All passes
// of the process share the looks.
type serverNeighbours struct {
	Neighbours

	mu sync.Mutex
	// looked is when the last look began, due when the next one may.
	looked, due time.Time
	// clear is when no replica was too far behind, hidden reports that replicas hide
	// their state.
	clear  time.Time
	hidden bool
}

// Share decides at which share of its time a pass works: by the others on the servers
// that it writes to. It is for between batches. Nil leaves that to a fixed duty. Behind
// the first batch of a pass it does not look: a wake-up has found its work then, and
// would wait for the answer.
func (t *Others) Share(duty float64) Share {
	if duty != 0 {
		return nil
	}
	begun := false
	return func(ctx context.Context, locked bool) (least float64, told Duty) {
		looks := begun
		begun = true
		for i, at := range t.targets {
			share, why := t.memory.on(at.DB.Name).share(ctx, at.Session.Conn, looks, locked)
			if i == 0 || share < least {
				least, told = share, why
			}
		}
		return least, told
	}
}

func (m *OthersMemory) on(name string) *serverNeighbours {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.neighbours == nil {
		m.neighbours = map[string]*serverNeighbours{}
	}
	if m.neighbours[name] == nil {
		m.neighbours[name] = &serverNeighbours{}
	}
	return m.neighbours[name]
}

func (n *serverNeighbours) share(ctx context.Context, conn *pgx.Conn, looks, locked bool) (float64, Duty) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if began := time.Now(); looks && !conn.IsClosed() && !began.Before(n.due) {
		n.due = began.Add(lookSeldom) // Another pass must not wait for this one's connection.
		if n.look(ctx, conn, began) {
			n.due = began.Add(min(max(lookEvery, costly*time.Since(began)), lookSeldom))
		} else {
			n.due = began.Add(lookAgain)
		}
	}
	return n.Neighbours.Share(locked)
}

// look reads the transactions of other sessions, without the lock meanwhile. It reports
// false if the role may not read them.
func (n *serverNeighbours) look(ctx context.Context, conn *pgx.Conn, now time.Time) bool {
	n.mu.Unlock()
	rows, _ := conn.Query(ctx, neighboursSQL)
	others, err := pgx.CollectRows(rows, pgx.RowTo[string])
	n.mu.Lock()
	switch {
	case err != nil && ctx.Err() != nil: // A pass that is asked to stop says nothing to others.
		return true
	case err != nil:
		n.Blind(now, err.Error())
	default:
		n.Saw(now, others)
	}
	n.looked = now
	return pgcatalog.SQLState(err) != "42501"
}
