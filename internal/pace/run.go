package pace

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sexton/internal/batch"
)

const (
	holdEvery = time.Second
	// A run that holds looks soon whether it may go on, then less often.
	holdFirst   = 250 * time.Millisecond
	holdLongest = time.Second
	// WorthAWord is the shortest wait that a person is told of: others are over before
	// they could be read about.
	WorthAWord = 200 * time.Millisecond
	// blockerEvery is how often a batch that goes on waiting asks again for whom.
	blockerEvery = 500 * time.Millisecond
	// longestPause bounds one pause of the duty cycle.
	longestPause = time.Second
	// lockedFor is how long a run that met a lock takes the others to be there.
	lockedFor = time.Second
)

// WaitClass is the sort of a reason to wait. There are few of them, so that they may
// label metrics.
type WaitClass string

// The sorts: a replica that is too far behind, a lock that another session holds, and the
// pause after a failure that others caused.
const (
	WaitReplica WaitClass = "replica"
	WaitLock    WaitClass = "lock"
	WaitBackOff WaitClass = "back_off"
)

// Throttle lets others slow a run down, and finds out which ones do. Its functions have a
// second to answer in, and each may be missing.
type Throttle struct {
	// Hold says why no batch may begin now, and "" where one may. It is asked between
	// batches, at most once a second, and again and again while it has a reason.
	Hold func(ctx context.Context) string
	// Share decides in the stead of a fixed duty.
	Share Share
	// Blocker names the session with the lock that the batch in a database waits for, and
	// is "" where none is known; runs with one database give no name. It is asked from
	// another goroutine while the session is busy, never twice at a time. The context
	// ends with the batch.
	Blocker func(ctx context.Context, database string) string
}

// Run is the pace of one run. Its methods are for the run's own goroutine.
type Run struct {
	Throttle

	// Until is when the run ends, on the monotonic clock; no pause is longer.
	Until time.Time
	// Stop asks the run to end early. What runs then is finished first.
	Stop context.Context //nolint:containedctx // asked between batches; the batches themselves outlive it
	// Ended reports whether no further batch may begin: Until and Stop, and whatever else
	// ends the run.
	Ended func() bool
	// Target is the time that one statement should take, Duty the share of its time that
	// the run works; the rest it leaves to others. Without a target, and with a duty of 0
	// or 1, there are no pauses.
	Target time.Duration
	Duty   float64
	// Shown, if set, receives the share at which the run works.
	Shown *Duty
	// Waits is told what the run waits for from now on; a reason of "" is nothing. A run
	// that only calls Watch needs none.
	Waits func(ctx context.Context, class WaitClass, reason string)

	// held is when Hold was asked last, locked when a lock was last in the way, owed the
	// time that has still to be left to others.
	held, locked time.Time
	owed         time.Duration
	// shared is the last answer of Share, 0 before.
	shared float64
}

// Await waits while Hold has a reason, at most until the run's end. It asks once a
// second, however often it is called, and again and again while there is a reason.
func (r *Run) Await(ctx context.Context) {
	if r.Hold == nil || time.Since(r.held) < holdEvery {
		return
	}
	for poll := holdFirst; !r.Ended(); poll = min(2*poll, holdLongest) {
		reason := r.Hold(ctx)
		r.held = time.Now()
		r.Waits(ctx, WaitReplica, reason)
		if reason == "" {
			return
		}
		r.Pause(ctx, poll)
	}
	r.Waits(ctx, "", "")
}

// Breathe pauses once enough time is owed, so that no more than the duty's share is work.
// A single small statement is followed by no pause, because there may be nothing after
// it.
func (r *Run) Breathe(ctx context.Context, took time.Duration) {
	if r.Target <= 0 {
		return
	}
	share, told := r.Duty, Duty{}
	switch {
	case r.Share != nil:
		share, told = r.Share(ctx, time.Since(r.locked) < lockedFor)
		r.shared = share
	case r.Duty > 0:
		told = configured(r.Duty)
	}
	if r.Shown != nil {
		*r.Shown = told
	}
	if share <= 0 || share >= 1 {
		r.owed = 0
		return
	}
	r.owed += time.Duration(float64(took) * (1/share - 1))
	if r.owed < r.Target/2 {
		return
	}
	owed := min(r.owed, longestPause)
	r.owed = 0
	r.Pause(ctx, owed)
}

// Shortened returns a shorter target while Share leaves time to other sessions, because
// each statement may block one of theirs.
func (r *Run) Shortened(target time.Duration) time.Duration {
	if r.shared > 0 {
		return time.Duration(float64(target) * r.shared)
	}
	return target
}

// Full reports whether Share leaves the run all of its time.
func (r *Run) Full() bool { return r.Share == nil || r.shared >= 1 }

// Locked notes that a lock of others was in the way.
func (r *Run) Locked() { r.locked = time.Now() }

// Pause does nothing for so long, at most until the run's end.
func (r *Run) Pause(ctx context.Context, length time.Duration) {
	timer := time.NewTimer(min(length, time.Until(r.Until)))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.Stop.Done():
	case <-ctx.Done():
	}
}

// Watch asks whom a batch waits for, from another goroutine, until the function that it
// returns is called, which tells the last answer that was one. Between the two the caller
// must not touch what Waits touches. Without a Blocker it does nothing.
func (r *Run) Watch(ctx context.Context, database string) (end func() string) {
	if r.Blocker == nil {
		return func() string { return "" }
	}
	watching, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	last := ""
	go func() {
		defer close(done)
		timer := time.NewTimer(WorthAWord)
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

// Frame is the time that a run has.
type Frame struct {
	// Stop asks the run to end early. What runs then is finished first.
	Stop context.Context //nolint:containedctx // asked between batches; the batches themselves outlive it
	// Until is when the run ends. Zero means that only Stop ends it.
	Until time.Time
	// Deadline is when the lease expires, zero for never. Until and Deadline are
	// monotonic.
	Deadline time.Time
}

// Under runs work under the session's lease. The frame ends after runtime, and a reserve
// before the lease expires. If runtime is 0, only the lease limits it. The context of
// work ends with the lease, not with ctx. If the lease was lost, the returned error also
// wraps the lease's error.
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
	// Doing describes the processing of an item, for errors.
	Doing func(T) string
}

// LockAgain is the lock timeout of items after one that met a lock. Many items may be
// locked.
const LockAgain = time.Millisecond

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
	// settling is the part of the lease that a statement near its end must leave.
	// shortest is the least timeout of a statement.
	settling = 300 * time.Millisecond
	shortest = 50 * time.Millisecond
)

// Within shortens the statement timeout to the rest of a lease that expires at deadline.
// A statement that is still running then would count as a lost lease. A zero deadline
// changes nothing.
func Within(limits batch.Limits, deadline time.Time) batch.Limits {
	if deadline.IsZero() {
		return limits
	}
	limits.StatementTimeout = min(limits.StatementTimeout, max(time.Until(deadline)-settling, shortest))
	return limits
}
