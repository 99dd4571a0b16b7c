package loosefk

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"sexton/internal/batch"
	"sexton/internal/drain"
	"sexton/internal/pace"
)

// Paces with fixed sizes process chunkSize tombstones together. They change at most
// deleteLimit or updateLimit rows in one statement, as GitLab does.
const (
	chunkSize   = 500
	deleteLimit = 1000
	updateLimit = 500
)

// Confirm is the default of Engine.ConfirmAfter, the time after which a removed tombstone
// is rechecked.
const Confirm = 10 * time.Minute

// ErrChanged is the error of a run that ended because tables have changed since the
// definitions were resolved. Committed work is kept.
var ErrChanged = drain.ErrChanged

// Remote is another database in which parents have children.
type Remote = drain.Remote

// Adaptive configures the adaptive pace, which chooses the sizes of its statements
// itself. The zero value stands for a pace with fixed sizes.
type Adaptive struct {
	// Target is the time that one transaction should take.
	Target time.Duration
	// Duty is the share of time during which a run works, at most 1, if Engine.Throttle
	// has no Share. The run pauses for the remaining time. If Duty is 0, it works all of
	// the time.
	Duty float64
}

func (a Adaptive) on() bool { return a.Target > 0 }

// Engine cleans up after the deleted parents of one database.
type Engine struct {
	// Database is the name of the database. Pace is the name of the pace. Both are labels
	// of the statistics.
	Database string
	Pace     string
	Limits   Limits
	// Adaptive configures the adaptive pace. It is the zero value for a pace with fixed
	// sizes.
	Adaptive Adaptive
	Throttle pace.Throttle
	Parents  []*Parent
	// Fingerprint, if set, is the fingerprint of the parents' tables when they were
	// bound. If it has changed, the run ends with ErrChanged.
	Fingerprint string
	Session     *batch.Session
	// Connections is the maximum number of sessions of the adaptive pace. More returns
	// another session under the same lease, or nil if there is none.
	Connections int
	More        func(ctx context.Context) *batch.Session
	// Remotes are the other databases in which parents have children, by name.
	Remotes map[string]Remote
	// Lost, if set, is called when the connection to another database is lost.
	Lost func(database string, err error)
	// ConfirmAfter is the time after which a removed tombstone is rechecked. If it is 0,
	// the constant Confirm applies.
	ConfirmAfter time.Duration
	// Sizes holds the sizes of chunks and statements that earlier runs of the process
	// have learned.
	Sizes *drain.Sizes
	// Undo makes batches save the rows that they delete or change, if the trigger has
	// saved the deleted parent row.
	Undo bool
	// Progress, if set, is called with the statistics after every batch, and when the
	// reason for waiting changes. It must not retain the statistics.
	Progress func(ctx context.Context, stats *Stats)
}

// Run processes due tombstones until none is left, a limit is reached or ctx ends. If a
// batch is running when ctx ends, it is finished first. The statistics are also valid
// with an error. The error wraps lease.ErrLost if another worker has taken the lease.
func (e *Engine) Run(ctx context.Context) (*Stats, error) {
	r := &run{Engine: e, stats: newStats(e.Database, e.Pace), references: map[*drain.Edge]*Reference{}}
	// The run ends one statement timeout before the lease expires, so that its last
	// statement ends under the lease.
	err := pace.Under(ctx, e.Session, e.Limits.Runtime, e.Session.Limits.StatementTimeout, r.runPass)
	return r.stats, err
}

// run is the state of one call of Engine.Run.
type run struct {
	*Engine

	pass       *drain.Pass
	source     *source
	references map[*drain.Edge]*Reference
	budget     budget
	// rowLimitReached reports that the limit of deleted or of updated rows was reached.
	rowLimitReached atomic.Bool

	// mu guards the statistics. The sessions and the search for lock holders update them
	// in parallel.
	mu    sync.Mutex
	stats *Stats
}

// runPass processes tombstones until none is due or the frame has ended, and completes
// the statistics.
func (r *run) runPass(ctx context.Context, frame *pace.Frame) error {
	r.budget = budget{limits: r.Limits, stats: r.stats, until: frame.Until}
	bound := r.bind()
	remotes := map[string]*Remote{}
	for name, remote := range r.Remotes {
		remotes[name] = &remote
	}
	r.source = &source{
		names: r.Session.Names, database: r.Database, remotes: remotes, parents: r.Parents, bound: bound,
		references:  r.references,
		fingerprint: r.Fingerprint, confirmAfter: cmp.Or(r.ConfirmAfter, Confirm), failed: r.failed, counted: r.counted,
	}
	throttle := r.Throttle
	throttle.Share = throttle.Share.Configured(r.Adaptive.Duty, r.recordDuty)
	r.pass = &drain.Pass{
		Source: r.source, Parents: bound, Session: r.Session, Connections: 1, Connect: r.More,
		Remotes: remotes, Target: r.Adaptive.Target, Chunk: chunkSize, Sizes: r.Sizes, Left: r.left,
		Pace: &pace.Run{
			Until: frame.Until, Stop: frame.Stop, Target: r.Adaptive.Target, Throttle: throttle,
			Ended: func() bool { return frame.Ended() || r.rowLimitReached.Load() },
			Waits: r.recordWait,
		},
		Report: drain.Report{
			Changed: r.changed, Removed: r.removed, Late: r.late, Failed: r.failed, Progress: r.progress, Lost: r.Lost,
		},
	}
	if r.source.origins.Store(r.Undo); !r.Undo {
		r.pass.MarkUnkept = markUnkept
	}
	if r.Adaptive.on() {
		r.pass.Connections = max(1, r.Connections)
	}
	if err := r.pass.Run(ctx); err != nil {
		return err
	}
	return r.finishStats(ctx)
}

// finishStats completes the statistics. If the run reached its limits, it records an
// attempt for each tombstone whose children were only partly deleted or changed.
func (r *run) finishStats(ctx context.Context) error {
	r.mu.Lock()
	r.stats.Duty, r.stats.WaitingFor, r.stats.WaitingClass = pace.Duty{}, "", ""
	left := r.pass.Open()
	over := r.rowLimitReached.Load() || !r.Adaptive.on() && r.budget.used()
	r.stats.OverLimit, r.stats.Interrupted = left && over, left && !over
	r.stats.Held = r.pass.Held()
	reason := batch.Fault{Message: r.budget.reason(), Verdict: batch.Unfinished}
	r.mu.Unlock()
	if !over {
		return nil
	}
	for parent, tombstones := range r.pass.Unfinished() {
		if _, err := r.source.Fail(ctx, r.Session, parent, tombstones, reason, 0); err != nil {
			return fmt.Errorf("record failed attempts: %w", err)
		}
	}
	return nil
}

// bind returns the parents, with an edge for each leaf of their references. Statements
// run in the order of the edges. Edges in other databases come first. Edges with events
// come next: a native cascade from another table would delete their rows without an
// event.
func (r *run) bind() []*drain.Parent {
	parents := make([]*drain.Parent, len(r.Parents))
	for i, parent := range r.Parents {
		bound := &drain.Parent{Key: &parent.Key, Name: parent.Recorded}
		ranks := [3][]*drain.Edge{}
		for _, reference := range parent.References {
			rank := 2
			switch {
			case reference.Remote:
				rank = 0
			case reference.EmitsEvent:
				rank = 1
			}
			ranks[rank] = append(ranks[rank], r.edges(reference)...)
		}
		for _, edges := range ranks {
			bound.Edges = append(bound.Edges, edges...)
		}
		parents[i] = bound
	}
	return parents
}

// edges returns an edge for each leaf of a reference. If the leaves are not known, it
// returns a single broken edge.
func (r *run) edges(reference *Reference) []*drain.Edge {
	edge := drain.Edge{
		Edge: &reference.Edge, Broken: reference.Broken, Keep: reference.Keep, UseReturning: &reference.useReturning,
		Limit: reference.limit(r.Adaptive.on()),
	}
	if reference.Remote {
		edge.Database = reference.Database
	}
	leaves := reference.Leaves
	if !reference.Usable() {
		leaves = []Table{reference.Child}
		edge.Broken = cmp.Or(edge.Broken, "database "+reference.Database+" cannot be reached")
	}
	edges := make([]*drain.Edge, len(leaves))
	for i, leaf := range leaves {
		one := edge
		one.Leaf, one.Broken = leaf, cmp.Or(edge.Broken, reference.BrokenLeaves[leaf.OID])
		edges[i] = &one
		r.references[edges[i]] = reference
	}
	return edges
}

// limit returns the maximum number of rows that one statement deletes or updates. It
// returns 0 if package drain chooses the number.
func (r *Reference) limit(adaptive bool) int {
	switch {
	case r.Definition.DeleteLimit > 0 && !r.Updates():
		return r.Definition.DeleteLimit
	case adaptive:
		return 0
	case r.Updates():
		return updateLimit
	default:
		return deleteLimit
	}
}

// recordDuty stores the run's current duty in the statistics.
func (r *run) recordDuty(duty pace.Duty) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats.Duty = duty
}

// left returns how many rows the run may still change through an edge.
func (r *run) left(e *drain.Edge) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return max(0, r.budget.left(e.Updates()))
}

func (r *run) changed(e *drain.Edge, _ []drain.Tombstone, rows int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats.countRows(r.references[e], rows)
	r.rowLimitReached.Store(r.budget.rowLimitReached())
}

func (r *run) removed(p *drain.Parent, tombstones []drain.Tombstone, lives bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var counts ParentCounts
	for _, t := range tombstones {
		switch {
		case t.Recheck:
			r.stats.Confirmed++
		case lives:
			counts.Revived++
		default:
			counts.Processed++
			r.stats.Latency.Add(time.Since(t.Made))
		}
	}
	r.stats.count(p.Label(), counts)
	if lives {
		r.stats.noteRevived(p, tombstones)
	}
}

func (r *run) late(rows int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats.LateChildren += rows
}

func (r *run) counted(parent string, more ParentCounts) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats.count(parent, more)
}

func (r *run) failed(f batch.Fault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats.Errors = batch.CountFault(r.stats.Errors, f)
}

func (r *run) progress(ctx context.Context) {
	if r.Progress == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats.WaitingFor, r.stats.WaitingClass = "", ""
	r.Progress(ctx, r.stats)
}

// recordWait stores the reason for which the run waits, or "", in the statistics. If the
// reason has changed, it calls Progress.
func (r *run) recordWait(ctx context.Context, class pace.WaitClass, reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if reason == "" {
		class = ""
	}
	if r.stats.WaitingFor == reason {
		return
	}
	r.stats.WaitingFor, r.stats.WaitingClass = reason, class
	if r.Progress != nil {
		r.Progress(ctx, r.stats)
	}
}
