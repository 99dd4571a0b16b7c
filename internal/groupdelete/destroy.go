package groupdelete

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"sexton/internal/batch"
	"sexton/internal/database"
	"sexton/internal/drain"
	"sexton/internal/drain/dml"
	"sexton/internal/lease"
	"sexton/internal/pace"
	"sexton/internal/problem"
)

// LeaseTTL is the length of the lease of one group, which a run renews every renewEvery.
const (
	LeaseTTL   = time.Minute
	renewEvery = 15 * time.Second
)

// LeaseKey names the lease of one group.
func LeaseKey(group dml.ID) string { return "groups/" + group.Text }

// Sizes bound the statements. Zero values stand for 1000 rows, 20 ms and all of the time.
type Sizes struct {
	// Rows is the number that statements begin with.
	Rows int
	// Target is the time that one statement should take, found by trying.
	Target time.Duration
	// Duty is the share of its time that a run works; the rest it leaves to others. 0 and
	// 1 are all of it.
	Duty float64
}

const (
	defaultTarget = 20 * time.Millisecond
	// DefaultRuntime is how long a run works, shorter than the lease and than a step.
	DefaultRuntime = 50 * time.Second
)

// Engine destroys one group of one database.
type Engine struct {
	// Session works under the lease of the group.
	Session *batch.Session
	Plan    *Plan
	GroupID dml.ID
	// Leases and Database are for the leases of sub-groups.
	Leases   *lease.Manager
	Database database.Database
	// Connections is the maximum number of sessions that delete projects at the same
	// time. More returns a further one, or nil if no connection is free.
	Connections int
	More        func(ctx context.Context) *batch.Session
	// Runtime ends the run; 0 stands for DefaultRuntime.
	Runtime  time.Duration
	Sizes    Sizes
	Throttle pace.Throttle
	// Progress, if set, is shown the statistics after every batch and whenever what the
	// run waits for changes. It must not keep them.
	Progress func(ctx context.Context, stats *Stats)
}

// Run works until the group is gone, its time is over or ctx ends; a batch that is
// running when ctx ends is finished first. How it ended stands in the statistics, which
// are valid beside an error, too. The error wraps lease.ErrLost where the lease has
// passed on; then nothing of the last batch remains.
//
// A group that cannot be destroyed for now is no error: the reason is recorded and in the
// statistics.
func (e *Engine) Run(ctx context.Context) (*Stats, error) {
	r := e.newRun(ctx)
	work := context.WithoutCancel(ctx)
	err := r.work(work)
	if err == nil && r.stats.Step != "" && !r.stats.Over() {
		err = r.record(work, r.Tree)
	}
	r.stats.Step, r.stats.ETASeconds, r.stats.Duty = "", nil, pace.Duty{}
	return r.stats, problem.Doing(err, "destroy group %s", e.GroupID)
}

// newRun is the state of a Run that begins now.
func (e *Engine) newRun(ctx context.Context) *run {
	r := &run{
		engine: e, stop: ctx, stats: newStats(e.GroupID), leases: []*lease.Lease{e.Session.Fence}, renewed: time.Now(),
		began:  time.Now(),
		rounds: map[dml.ID]int{},
	}
	r.until = r.began.Add(cmp.Or(max(e.Runtime, 0), DefaultRuntime))
	r.Tree = &drain.Tree{
		Session: e.Session, Owner: r.owner(), Rows: e.Sizes.Rows, Target: cmp.Or(e.Sizes.Target, defaultTarget),
		Send: r.send, Progress: r.batchDone,
		Paused: func(ctx context.Context) bool { return r.paused(ctx, r.Tree, r.ended, &r.asked, escapeEvery) },
		Alter: func(ctx context.Context, limits batch.Limits, statements ...batch.Statement) error {
			return r.alter(ctx, limits, 0, statements...)
		},
	}
	throttle := e.Throttle
	share := throttle.Share.Configured(e.Sizes.Duty, r.worksAt)
	throttle.Share = func(ctx context.Context, locked bool) (float64, pace.Duty) {
		part, why := share(ctx, locked)
		r.forks.othersActive.Store(part < 1)
		return part, why
	}
	r.Pace = &pace.Run{
		Until: r.until, Stop: ctx, Ended: r.ended, Target: r.Target, Throttle: throttle,
		Waits: func(ctx context.Context, class pace.WaitClass, reason string) {
			if class == pace.WaitReplica && reason != "" {
				r.excuse()
			}
			r.waitsFor(ctx, reason)
		},
	}
	return r
}

// run is the state of one Run. None of it is needed by the next one. Its session works
// under the lease of the group in hand.
type run struct {
	*drain.Tree

	engine *Engine
	stop   context.Context //nolint:containedctx // asked between batches; the batches themselves outlive it
	// began is when the run began, with doneBefore rows deleted by those before it.
	began, until time.Time
	doneBefore   int64
	// leases are those of the group and of the sub-groups down to the one in hand.
	leases []*lease.Lease
	// line are the groups in hand, from the top down.
	line []dml.ID
	// asked counts the queries whether what is in hand is still below the group.
	asked int
	// rounds is how often groups were found with rows again below which nothing had been
	// left. More than mostRounds gives a group up.
	rounds map[dml.ID]int
	// busy is a sub-group that another run is destroying.
	busy *lease.HeldError
	// lock is the wait for others' locks, which grows with every one in a row.
	lock pace.LockBackoff
	// forks are the sessions that delete projects at the same time.
	forks forks

	// mu guards all below, which several sessions use.
	mu    sync.Mutex
	stats *Stats
	// renewed is when the leases were last renewed.
	renewed time.Time
	// recorded is when the number of deleted rows was last recorded.
	recorded time.Time
	// excused reports that the run had to hold, or to wait for another one on a
	// sub-group.
	excused bool
	// final reports that a row has gone or changed, in this run or before, so that the
	// deletion cannot be cancelled any more.
	final bool
	// moved reports that what is in hand is not below the group any more.
	moved bool
}

func (r *run) ended() bool {
	return r.stop.Err() != nil || !time.Now().Before(r.until) || r.Failures >= drain.MostFailures
}

// futile reports that the run has used all of its time, and nothing has moved.
func (r *run) futile() bool { return r.stop.Err() == nil && r.Changes == 0 && !r.excused }

// excuse records that the run had to wait for others.
func (r *run) excuse() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.excused = true
}

// paused reports whether the rows that a tree is deleting must be left: because the run
// ends, or because they have escaped. It waits while the engine is asked to hold.
func (r *run) paused(ctx context.Context, tree *drain.Tree, ended func() bool, asked *int, every int) bool {
	r.withPace(tree, func(p *pace.Run) { p.Await(ctx) })
	if r.mustRecord() {
		_ = r.record(ctx, tree) // If the error persists, the next batch returns it.
	}
	return ended() || r.escaped(ctx, tree, asked, every)
}

// worksAt records the share of its time at which the run works.
func (r *run) worksAt(duty pace.Duty) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats.Duty = duty
}

// recordEvery is how often a run records in the database how many rows it has deleted.
const recordEvery = time.Second

// mustRecord reports whether the last record is too long ago.
func (r *run) mustRecord() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Since(r.recorded) >= recordEvery
}

// record records the present step and the number of deleted rows.
func (r *run) record(ctx context.Context, tree *drain.Tree) error {
	r.mu.Lock()
	r.recorded = time.Now()
	args := []any{r.group(), r.stats.Step, r.stats.Done}
	r.mu.Unlock()
	limits := r.Session.Limits
	limits.Own = true
	return tree.Send(ctx, limits, batch.Statement{SQL: statement(r.Session.Names, "record"), Args: args})
}

// busyPause is how long a run waits that can do nothing until another run on a sub-group
// is over.
const busyPause = time.Second

func (r *run) work(ctx context.Context) error {
	ready, err := r.begin(ctx)
	if err != nil {
		return r.handleBeginning(ctx, err)
	}
	if !ready {
		return nil
	}
	for {
		before := r.Changes
		r.Restart()
		result, err := r.destroyGroup(ctx, r.engine.GroupID)
		if r.Changes > before {
			r.lock = pace.LockBackoff{}
		}
		switch {
		case errors.Is(err, drain.ErrCancelled):
			r.stats.Outcome, r.stats.Reason = Kept, "the deletion was cancelled before the first row was removed"
			return nil
		case err != nil:
			return err
		case result == dml.Finished:
			r.stats.Outcome = Destroyed
			return nil
		case r.moved:
			// From the top again, with what is still there.
			r.moved = false
			continue
		case r.Failures >= drain.MostFailures, result == dml.Yielded && r.futile():
			// Else a run that gets nowhere would be followed by the next one at once.
			return r.recordFailure(ctx)
		case result == dml.Yielded:
			r.stats.Outcome, r.stats.Interrupted, r.stats.Reason = Unfinished, r.stop.Err() != nil, r.lock.Reason
			return nil
		case r.Changes > before:
			r.Waits = false
		case !r.Waits:
			r.Waits = true
		case r.Fault == nil && r.RetryCircle():
		case r.busy != nil && r.Fault == nil:
			r.waitsFor(ctx, "sub-group: "+r.busy.Error())
			r.Pace.Pause(ctx, busyPause)
			r.waitsFor(ctx, "")
			if r.ended() {
				r.stats.Outcome = Unfinished
				return nil
			}
		case r.Fault == nil && r.Obstacle.Lock():
			if err := r.waitForLock(ctx); err != nil {
				return err
			}
		default:
			return r.recordFailure(ctx)
		}
		r.busy = nil
	}
}

// waitForLock waits until the next try is due, which is not an attempt. If the run ends
// before that, the next run continues.
func (r *run) waitForLock(ctx context.Context) error {
	r.excuse()
	r.lock.Fail(r.Obstacle.Text())
	for r.lock.Waits() && !r.ended() {
		if err := r.renew(ctx); err != nil {
			return err
		}
		r.Pace.AwaitRetry(ctx, &r.lock)
	}
	return nil
}

// send runs one transaction, bounded by the lease that the session works under.
func (r *run) send(ctx context.Context, limits batch.Limits, statements ...batch.Statement) error {
	return r.sendOver(ctx, r.Session, limits, statements...)
}

// sendOwn sends statements that fire no trigger of the application.
func (r *run) sendOwn(ctx context.Context, statements ...batch.Statement) error {
	limits := r.Session.Limits
	limits.Own = true
	return r.send(ctx, limits, statements...)
}

func (r *run) sendOver(ctx context.Context, session *batch.Session, limits batch.Limits,
	statements ...batch.Statement,
) error {
	if err := r.renew(ctx); err != nil {
		return err
	}
	bounded, cancel := session.Fence.Context(ctx)
	defer cancel()
	deadline, _ := bounded.Deadline()
	_, err := session.RunWithin(bounded, pace.Within(limits, deadline), statements...)
	if err != nil && bounded.Err() != nil {
		return errors.Join(context.Cause(bounded), err)
	}
	return err
}

// renew extends all leases, now and then.
func (r *run) renew(ctx context.Context) error {
	r.mu.Lock()
	due := time.Since(r.renewed) >= renewEvery
	if due {
		r.renewed = time.Now() // Only one session renews them. An error ends the run.
	}
	r.mu.Unlock()
	if !due {
		return nil
	}
	for _, held := range r.leases {
		if err := held.Renew(ctx); err != nil {
			return err
		}
	}
	return nil
}

// waitsFor tells at once what the run waits for from now on; "" is nothing.
func (r *run) waitsFor(ctx context.Context, reason string) {
	r.report(ctx, func(stats *Stats) bool {
		changed := stats.WaitingFor != reason
		stats.WaitingFor = reason
		return changed
	})
}

// batchDone counts a batch.
func (r *run) batchDone(ctx context.Context) {
	r.report(ctx, func(stats *Stats) bool {
		stats.Batches++
		return true
	})
}

// report changes the statistics and calls Progress if change returns true.
func (r *run) report(ctx context.Context, change func(*Stats) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !change(r.stats) {
		return
	}
	r.stats.pace(time.Since(r.began), r.stats.Done-r.doneBefore)
	if r.engine.Progress != nil {
		r.engine.Progress(ctx, r.stats)
	}
}
