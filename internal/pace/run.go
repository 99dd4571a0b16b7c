package pace

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sexton/internal/batch"
)

const (
	// replicaPause is the time after which a run checks a lagging replica again. The
	// pause doubles with each check, up to longestReplicaPause.
	replicaPause        = 250 * time.Millisecond
	longestReplicaPause = time.Second
	// ReportAfter is the time that a batch waits before its lock holder is queried.
	// Shorter waits end before an operator could read the report.
	ReportAfter = 200 * time.Millisecond
	// blockerEvery is the interval at which the lock holder is queried again.
	blockerEvery = 500 * time.Millisecond
	// longestPause limits one pause after a batch.
	longestPause = time.Second
	// recentLock is the time after a lock wait during which other sessions count as
	// active.
	recentLock = time.Second
)

// WaitClass is the class of a reason for waiting. The number of classes is small, so that
// metrics can have them as labels.
type WaitClass string

// These constants are the classes: a replica that lags too much, a lock of another
// session, and the pause after a failure that other sessions caused.
const (
	WaitReplica WaitClass = "replica"
	WaitLock    WaitClass = "lock"
	WaitBackOff WaitClass = "back_off"
)

// Throttle holds the functions that slow a run down because of other work on the server.
// Each of the functions may be nil, and must return within a second.
type Throttle struct {
	// Hold returns the reason for which no batch may begin now, or "". It is called
	// between batches, at most once a second, and repeatedly while it returns a reason.
	Hold func(ctx context.Context) string
	// Share returns the share of its time that the run works. See the type Share.
	Share Share
	// Blocker returns the session that holds the lock which the batch in a database waits
	// for, or "". Runs with one database pass an empty name. It is called from another
	// goroutine while the session is busy, never concurrently. Its context ends with the
	// batch.
	Blocker func(ctx context.Context, database string) string
}

// Run controls the waits and pauses of one run. Its methods must be called from the
// goroutine of the run.
type Run struct {
	Throttle

	// Until is the time when the run ends, on the monotonic clock. A pause never exceeds
	// it.
	Until time.Time
	// Stop makes the run end early. A running batch is finished first.
	Stop context.Context //nolint:containedctx // checked between batches; the batches themselves outlive it
	// Ended reports whether no further batch may begin, because of Until, Stop or another
	// reason.
	Ended func() bool
	// Target is the time that one statement should take. If it is 0, there are no pauses.
	Target time.Duration
	// Waits is called when the run begins to wait, with the reason, and when it no longer
	// waits, with an empty reason. It may be nil if only Watch is called.
	Waits func(ctx context.Context, class WaitClass, reason string)

	// held is the time of the last call of Hold. locked is the time of the last lock
	// wait. owed is the time that the run must still pause.
	held, locked time.Time
	owed         time.Duration
	// share is the last result of Share. It is 0 before the first call.
	share float64
}

// Await waits until Hold returns "" or the run has ended. If Hold was called less than
// replicaCheckEvery ago, Await returns immediately.
func (r *Run) Await(ctx context.Context) {
	if r.Hold == nil || time.Since(r.held) < replicaCheckEvery {
		return
	}
	for pause := replicaPause; !r.Ended(); pause = min(2*pause, longestReplicaPause) {
		reason := r.Hold(ctx)
		r.held = time.Now()
		r.Waits(ctx, WaitReplica, reason)
		if reason == "" {
			return
		}
		r.Pause(ctx, pause)
	}
	r.Waits(ctx, "", "")
}

// PauseAfterBatch pauses so that the run works no more than its share of the time. Short
// pauses are added up and made together, so that no pause follows a single small
// statement, which may be the last one.
func (r *Run) PauseAfterBatch(ctx context.Context, took time.Duration) {
	if r.Target <= 0 || r.Share == nil {
		return
	}
	r.share, _ = r.Share(ctx, time.Since(r.locked) < recentLock)
	if r.share <= 0 || r.share >= 1 {
		r.owed = 0
		return
	}
	r.owed += time.Duration(float64(took) * (1/r.share - 1))
	if r.owed < r.Target/2 {
		return
	}
	owed := min(r.owed, longestPause)
	r.owed = 0
	r.Pause(ctx, owed)
}

// Shortened returns target times the current share, because each statement may block a
// statement of another session.
func (r *Run) Shortened(target time.Duration) time.Duration {
	if r.share > 0 {
		return time.Duration(float64(target) * r.share)
	}
	return target
}

// Full reports whether the run works all of its time.
func (r *Run) Full() bool { return r.Share == nil || r.share >= 1 }

// Locked records that the run met a lock of another session.
func (r *Run) Locked() { r.locked = time.Now() }

// Pause waits for length, but not beyond the end of the run.
func (r *Run) Pause(ctx context.Context, length time.Duration) {
	timer := time.NewTimer(min(length, time.Until(r.Until)))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.Stop.Done():
	case <-ctx.Done():
	}
}

// Watch starts a search in another goroutine for the session that a batch waits for. The
// returned function ends the search and returns the last session that was found, or "".
// Before the search has ended, the caller must not access the data that Waits accesses.
// Watch does nothing without a Blocker.
func (r *Run) Watch(ctx context.Context, database string) (end func() string) {
	if r.Blocker == nil {
		return func() string { return "" }
	}
	watching, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	last := ""
	go func() {
		defer close(done)
		timer := time.NewTimer(ReportAfter)
		defer timer.Stop()
		for {
			select {
			case <-watching.Done():
				return
			case <-timer.C:
			}
			if reason := r.Blocker(watching, database); watching.Err() == nil {
				r.waits(ctx, WaitLock, reason)
				if reason != "" {
					last = reason
				}
			}
			timer.Reset(blockerEvery)
		}
	}()
	return func() string {
		cancel()
		<-done
		r.waits(ctx, "", "")
		return last
	}
}

func (r *Run) waits(ctx context.Context, class WaitClass, reason string) {
	if r.Waits != nil {
		r.Waits(ctx, class, reason)
	}
}

// Sleep waits for d. It returns the context's error if ctx ends earlier.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err() //nolint:wrapcheck // the caller's own
	}
}

// Frame is the time limit of a run.
type Frame struct {
	// Stop makes the run end early. A running batch is finished first.
	Stop context.Context //nolint:containedctx // checked between batches; the batches themselves outlive it
	// Until is the time when the run ends. If it is zero, only Stop ends the run.
	Until time.Time
	// Deadline is the time when the lease expires, or zero if it does not expire. Until
	// and Deadline are monotonic.
	Deadline time.Time
}

// Under calls work under the session's lease. The frame ends after runtime, but no later
// than reserve before the lease expires. If runtime is 0, only the lease limits the
// frame. The context of work ends with the lease, not with ctx. If the lease was lost,
// the returned error also wraps the lease's error.
func Under(ctx context.Context, session *batch.Session, runtime, reserve time.Duration,
	work func(context.Context, *Frame) error,
) error {
	hard, cancel := session.Fence.Context(context.WithoutCancel(ctx))
	defer cancel()
	f := &Frame{Stop: ctx}
	if runtime > 0 {
		f.Until = time.Now().Add(runtime)
	}
	if deadline, ok := hard.Deadline(); ok {
		f.Deadline = deadline
		if last := deadline.Add(-reserve); f.Until.IsZero() || last.Before(f.Until) {
			f.Until = last
		}
	}
	err := work(hard, f)
	if cause := context.Cause(hard); err != nil && cause != nil {
		err = errors.Join(cause, err)
	}
	return err
}

// Ended reports whether no further batch may begin.
func (f *Frame) Ended() bool {
	return f.Stop.Err() != nil || !f.Until.IsZero() && !time.Now().Before(f.Until)
}

// Items describes the items that a run processes one after the other.
type Items[T any] struct {
	// Page returns the next items, and whether more may follow.
	Page func(context.Context) (items []T, more bool, err error)
	// One processes an item in one transaction.
	One func(context.Context, T) error
	// Failed defers an item after an error that concerns only that item. An error of
	// Failed ends the run.
	Failed func(context.Context, T, batch.Fault, error) error
	// Doing returns a description of the processing of an item, for errors.
	Doing func(T) string
}

// ShortLockTimeout is the lock timeout for the items after a locked item. With the full
// timeout, a run could spend all of its time on many locked items.
const ShortLockTimeout = time.Millisecond

// Each processes items until none is left or the frame has ended. interrupted reports
// that the run was stopped. overLimit reports that its time expired before all items were
// processed. An error that concerns more than one item ends the run.
func (i Items[T]) Each(ctx context.Context, f *Frame) (overLimit, interrupted bool, _ error) {
	for more := true; more; {
		var page []T
		var err error
		if page, more, err = i.Page(ctx); err != nil {
			return false, false, err
		}
		for _, item := range page {
			if f.Ended() {
				interrupted = f.Stop.Err() != nil
				return !interrupted, interrupted, nil
			}
			err := i.One(ctx, item)
			if err == nil {
				continue
			}
			if judged := batch.Judge(err); judged.Verdict != batch.Fatal && judged.Verdict != batch.Hopeless {
				err = i.Failed(ctx, item, judged, err)
			}
			if err != nil {
				return false, false, fmt.Errorf("%s: %w", i.Doing(item), err)
			}
		}
	}
	return false, false, nil
}

const (
	// leaseReserve is the time between the timeout of the last statement and the end of
	// the lease. shortestTimeout is the smallest statement timeout.
	leaseReserve    = 300 * time.Millisecond
	shortestTimeout = 50 * time.Millisecond
)

// Within shortens the statement timeout so that statements end before the lease expires
// at deadline. If a statement were still running at deadline, the lease would count as
// lost. If deadline is zero, Within returns limits unchanged.
func Within(limits batch.Limits, deadline time.Time) batch.Limits {
	if deadline.IsZero() {
		return limits
	}
	limits.StatementTimeout = min(limits.StatementTimeout, max(time.Until(deadline)-leaseReserve, shortestTimeout))
	return limits
}
