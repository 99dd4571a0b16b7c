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

// LeaseTTL is the duration of the lease of one group. A run renews it every renewEvery.
const (
	LeaseTTL   = time.Minute
	renewEvery = 15 * time.Second
)

// LeaseKey returns the key of the lease of one group.
func LeaseKey(group dml.ID) string { return "groups/" + group.Text }

// Sizes limit the statements and the load of a run. Zero values mean 1000 rows, 20 ms and
// a duty of 1.
type Sizes struct {
	// Rows is the number of rows of the first statements.
	Rows int
	// Target is the time that one statement should take. The number of rows adapts to it.
	Target time.Duration
	// Duty is the share of time during which a run works, from 0 to 1. 0 means 1.
	Duty float64
}

const (
	defaultTarget = 20 * time.Millisecond
	// DefaultRuntime limits a run. It is shorter than LeaseTTL.
	DefaultRuntime = 50 * time.Second
)

// Engine destroys one group of one database.
type Engine struct {
	// Session works under the lease of the group.
	Session *batch.Session
	Plan    *Plan
	GroupID dml.ID
	// Leases grants the leases of sub-groups, whose fencing tokens are stored in
	// Database.
	Leases   *lease.Manager
	Database database.Database
	// Runtime limits the time of the run. 0 means DefaultRuntime.
	Runtime  time.Duration
	Sizes    Sizes
	Throttle pace.Throttle
	// Progress, if set, is called with the statistics after every batch and when the
	// reason for which the run waits changes. The callback must not retain the
	// statistics.
	Progress func(ctx context.Context, stats *Stats)
}

// Run deletes until the group is deleted, the runtime has passed or ctx ends. If ctx
// ends, it finishes the current batch first. The statistics contain the outcome and are
// valid even if there is an error. The error wraps lease.ErrLost if another worker has
// taken the lease. In that case the last batch was rolled back.
//
// A group that cannot be destroyed now is not an error. The reason is recorded in the
// database and in the statistics.
func (e *Engine) Run(ctx context.Context) (*Stats, error) {
	r := e.newRun(ctx)
	work := context.WithoutCancel(ctx)
	err := r.work(work)
	if err == nil && r.stats.Step != "" && !r.stats.Over() {
		err = r.record(work)
	}
	r.stats.Step, r.stats.ETASeconds, r.stats.Duty = "", nil, pace.Duty{}
	return r.stats, problem.Doing(err, "destroy group %s", e.GroupID)
}

// newRun returns the state of a Run that begins now.
func (e *Engine) newRun(ctx context.Context) *run {
	r := &run{
		engine: e, stop: ctx, stats: newStats(e.GroupID), leases: []*lease.Lease{e.Session.Fence}, renewed: time.Now(),
		began:    time.Now(),
		refilled: map[dml.ID]int{},
	}
	r.until = r.began.Add(cmp.Or(max(e.Runtime, 0), DefaultRuntime))
	r.Tree = &drain.Tree{
		Session: e.Session, Owner: r.owner(), Rows: e.Sizes.Rows, Target: cmp.Or(e.Sizes.Target, defaultTarget),
		Send: r.send, Progress: r.batchDone, Paused: r.paused,
		Alter: func(ctx context.Context, limits batch.Limits, statements ...batch.Statement) error {
			return r.alter(ctx, limits, 0, statements...)
		},
	}
	throttle := e.Throttle
	throttle.Share = throttle.Share.Configured(e.Sizes.Duty, r.setDuty)
	r.Pace = &pace.Run{
		Until: r.until, Stop: ctx, Ended: r.ended, Target: r.Target, Throttle: throttle,
		Waits: func(ctx context.Context, class pace.WaitClass, reason string) {
			if class == pace.WaitReplica && reason != "" {
				r.waited = true
			}
			r.setWaitingFor(ctx, reason)
		},
	}
	return r
}

// run is the state of one Run, and is discarded at its end. Its session works under the
// lease of the current group.
type run struct {
	*drain.Tree

	engine *Engine
	stop   context.Context //nolint:containedctx // checked between batches, which do not end with it
	// began is the start of the run. doneBefore is the number of rows that earlier runs
	// deleted.
	began, until time.Time
	doneBefore   int64
	// leases holds the leases of the group and of the sub-groups down to the current one.
	leases []*lease.Lease
	// lineage holds the groups from the run's group down to the current one.
	lineage []dml.ID
	// moveChecks counts the calls of movedAway.
	moveChecks int
	// refilled counts for each group how often new rows referred to the group after it
	// was cleared. A group with more than mostRefills is blocked.
	refilled map[dml.ID]int
	// heldSubgroup is the error for a sub-group whose lease another run holds.
	heldSubgroup *lease.HeldError
	// lockWait is the backoff for locks of other sessions. Its delay grows with
	// consecutive waits.
	lockWait pace.LockBackoff
	// renewed is the time of the last renewal of the leases. recorded is the time at
	// which the number of deleted rows was last recorded.
	renewed, recorded time.Time
	// waited reports that the run was paused, or had to wait for locks or for another run
	// on a sub-group.
	waited bool
	// final reports that this run or an earlier one has deleted or changed a row, so that
	// the deletion cannot be canceled any more.
	final bool
	// moved reports that a current group or project was moved out of the run's group.
	moved bool

	// mu guards stats, to which Pace.Watch reports from another goroutine.
	mu    sync.Mutex
	stats *Stats
}

func (r *run) ended() bool {
	return r.stop.Err() != nil || !time.Now().Before(r.until) || r.Failures >= drain.MostFailures
}

// futile reports whether the run has used all of its time without changing a row.
func (r *run) futile() bool { return r.stop.Err() == nil && r.Changes == 0 && !r.waited }

// paused reports whether the run must stop deleting the current rows, because the run
// ends or because the rows were moved. It first waits while Pace holds the run, for
// example because a replica lags.
func (r *run) paused(ctx context.Context) bool {
	r.Pace.Await(ctx)
	if time.Since(r.recorded) >= recordEvery {
		// The error is ignored, because the next batch returns it if it persists.
		_ = r.record(ctx)
	}
	return r.ended() || r.movedAway(ctx)
}

// setDuty sets the duty in the statistics, which is the share of time during which the
// run works.
func (r *run) setDuty(duty pace.Duty) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats.Duty = duty
}

// recordEvery is the interval at which a run records the number of deleted rows in the
// database.
const recordEvery = time.Second

// record stores the current step and the number of deleted rows in the database.
func (r *run) record(ctx context.Context) error {
	r.recorded = time.Now()
	return r.sendOwn(ctx, batch.Statement{
		SQL: statement(r.Session.Names, "record"), Args: []any{r.group(), r.stats.Step, r.stats.Done},
	})
}

// subgroupPause is the time that a run waits if only a sub-group is left whose lease
// another run holds.
const subgroupPause = time.Second

func (r *run) work(ctx context.Context) error {
	ready, err := r.begin(ctx)
	if err != nil {
		return r.deferGroup(ctx, err)
	}
	if !ready {
		return nil
	}
	for {
		before := r.Changes
		r.Restart()
		result, err := r.destroyGroup(ctx, r.engine.GroupID)
		if r.Changes > before {
			r.lockWait = pace.LockBackoff{}
		}
		switch {
		case errors.Is(err, drain.ErrCancelled):
			r.stats.Outcome, r.stats.Reason = Kept, "the deletion was canceled before the first row was deleted"
			return nil
		case err != nil:
			return err
		case result == dml.Finished:
			r.stats.Outcome = Destroyed
			return nil
		case r.moved:
			r.moved = false
			continue
		case r.Failures >= drain.MostFailures, result == dml.Yielded && r.futile():
			// Without a recorded failure, the next run would begin immediately and be
			// futile, too.
			return r.recordFailure(ctx)
		case result == dml.Yielded:
			r.stats.Outcome, r.stats.Interrupted, r.stats.Reason = Unfinished, r.stop.Err() != nil, r.lockWait.Reason
			return nil
		case r.Changes > before:
			r.Waits = false
		case !r.Waits:
			r.Waits = true
		case r.Fault == nil && r.RetryCycle():
		case r.heldSubgroup != nil && r.Fault == nil:
			r.setWaitingFor(ctx, "sub-group: "+r.heldSubgroup.Error())
			r.Pace.Pause(ctx, subgroupPause)
			r.setWaitingFor(ctx, "")
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
		r.heldSubgroup = nil
	}
}

// waitForLock waits until locked rows must be tried again, or until the run ends. A wait
// for a lock counts no attempt.
func (r *run) waitForLock(ctx context.Context) error {
	r.waited = true
	r.lockWait.Fail(r.Obstacle.Text())
	for r.lockWait.Waits() && !r.ended() {
		if err := r.renew(ctx); err != nil {
			return err
		}
		r.Pace.AwaitRetry(ctx, &r.lockWait)
	}
	return nil
}

// send runs one transaction, limited by the lease that the session works under.
func (r *run) send(ctx context.Context, limits batch.Limits, statements ...batch.Statement) error {
	if err := r.renew(ctx); err != nil {
		return err
	}
	bounded, cancel := r.Session.Fence.Context(ctx)
	defer cancel()
	deadline, _ := bounded.Deadline()
	_, err := r.Session.RunWithin(bounded, pace.Within(limits, deadline), statements...)
	if err != nil && bounded.Err() != nil {
		return errors.Join(context.Cause(bounded), err)
	}
	return err
}

// sendOwn runs a transaction whose statements fire no trigger of the application.
func (r *run) sendOwn(ctx context.Context, statements ...batch.Statement) error {
	limits := r.Session.Limits
	limits.Own = true
	return r.send(ctx, limits, statements...)
}

// renew extends all leases, at most every renewEvery.
func (r *run) renew(ctx context.Context) error {
	if time.Since(r.renewed) < renewEvery {
		return nil
	}
	// The time is set before the renewal, because an error of the renewal ends the run.
	r.renewed = time.Now()
	for _, held := range r.leases {
		if err := held.Renew(ctx); err != nil {
			return err
		}
	}
	return nil
}

// setWaitingFor reports the reason for which the run waits, or "" if it does not wait.
func (r *run) setWaitingFor(ctx context.Context, reason string) {
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
