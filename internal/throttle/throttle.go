// Package throttle makes one pass wait for others: for replicas that are too far behind, and for the sessions that hold its locks.
package throttle

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"sexton/internal/batch"
	"sexton/internal/config"
	"sexton/internal/database"
	"sexton/internal/pace"
	"sexton/internal/replica"
)

// ClearFor is how long the answer that no replica is too far behind serves the passes that come after: as long as
// it serves the pass that asked.
const ClearFor = time.Second

// Throttle makes one pass wait for others, and logs what it waits for, once for each.
type Throttle struct {
	targets []*target
	limits  replica.Limits
	log     *slog.Logger
	memory  *Memory
	blocker string
}

// Target is one database that a pass writes to.
type Target struct {
	DB      database.Database
	Session *batch.Session
}

type target struct {
	Target

	// blind is set when the replicas could not be asked: the rest of the pass goes on without.
	blind   bool
	replica string
}

// Memory keeps what passes of one process know of replicas, and of the others on a server. The zero value is ready to use.
type Memory struct {
	mu sync.Mutex
	// neighbours are by database.
	neighbours map[string]*neighbours
}

// New returns the throttle of a pass, whose own target is the first.
func New(log *slog.Logger, memory *Memory, limits replica.Limits, targets ...Target) *Throttle {
	t := &Throttle{limits: limits, log: log, memory: memory}
	for _, one := range targets {
		t.targets = append(t.targets, &target{Target: one})
	}
	return t
}

// For is the throttle of a run with that duty. Where replicas do not count it does not hold.
func (t *Throttle) For(duty config.Duty) pace.Throttle {
	run := pace.Throttle{Share: t.Share(duty), Blocker: t.Blocker}
	if t.limits.On() {
		run.Hold = t.Hold
	}
	return run
}

// Hold says which replica is too far behind. Where that cannot be told, the pass does not wait.
func (t *Throttle) Hold(ctx context.Context) string {
	for _, at := range t.targets {
		if reason := t.holdFor(ctx, at); reason != "" {
			return reason
		}
	}
	return ""
}

func (t *Throttle) holdFor(ctx context.Context, at *target) string {
	if at.blind || t.memory.ClearSince(at.DB.Name) < ClearFor {
		return ""
	}
	// On the pass's own connection, which is idle between its batches: another one would have to be opened for this alone.
	replicas, err := replica.Read(ctx, at.Session.Conn)
	if err != nil && ctx.Err() != nil {
		return "" // The pass is asked to stop.
	}
	if err != nil {
		at.blind = true
		if !errors.Is(err, replica.ErrHidden) || t.memory.firstHidden(at.DB.Name) {
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
func (m *Memory) ClearSince(name string) time.Duration {
	n := m.on(name)
	n.mu.Lock()
	defer n.mu.Unlock()
	return time.Since(n.clear)
}

// NoteClear notes that no replica of a database was too far behind at that time.
func (m *Memory) NoteClear(name string, at time.Time) {
	n := m.on(name)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.clear = at
}

// firstHidden reports whether it is the first time in this process that a database's replicas hide their state.
func (m *Memory) firstHidden(name string) bool {
	n := m.on(name)
	n.mu.Lock()
	defer n.mu.Unlock()
	known := n.hidden
	n.hidden = true
	return !known
}

// Blocker names the session that a batch in a database waits for; without a name that is the pass's own.
func (t *Throttle) Blocker(ctx context.Context, name string) string {
	known := slices.IndexFunc(t.targets, func(at *target) bool { return name == "" || at.DB.Name == name })
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
