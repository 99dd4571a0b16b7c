package pace

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sexton/internal/batch"
)

// Frame is the time that a run has.
type Frame struct {
	// Stop asks the run to end early. What runs then is finished first.
	Stop context.Context //nolint:containedctx // asked between batches; the batches themselves outlive it
	// Until is when the run ends; zero: with Stop alone.
	Until time.Time
	// Deadline is when the lease ends; zero: never. Both are monotonic.
	Deadline time.Time
}

// Under runs work under the session's lease: for the runtime, or without one as long as the lease lasts, less a reserve for what is running
// then. The context that work gets ends with the lease and not with ctx. An error is joined with that of the lease, if that has passed on.
func Under(ctx context.Context, session *batch.Session, runtime, reserve time.Duration, work func(context.Context, *Frame) error) error {
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

// Items are what a run works on, one after the other.
type Items[T any] struct {
	// Page returns the next ones, and whether more may follow.
	Page func(context.Context) (items []T, more bool, err error)
	// One works on an item, in one transaction.
	One func(context.Context, T) error
	// Failed puts off an item that the database does not let through, so that it stops no other. Its error ends the run.
	Failed func(context.Context, T, batch.Fault, error) error
	// Doing says in errors what the run did with an item.
	Doing func(T) string
}

// LockAgain is how long an item waits for a lock behind one that has met one: there may be many of them.
const LockAgain = time.Millisecond

// Each works on items until none is left or the frame has ended: interrupted reports that the run was asked to stop, overLimit that its time
// was over before all items were done. An error that says nothing about the item alone ends the run.
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
	// settling is the part of the lease that a statement near its end leaves, shortest the least time that it gets.
	settling = 300 * time.Millisecond
	shortest = 50 * time.Millisecond
)

// Within cuts the timeout to what is left of a lease that ends at deadline: a statement that it ends under would count as a
// loss. The zero time is no deadline.
func Within(limits batch.Limits, deadline time.Time) batch.Limits {
	if deadline.IsZero() {
		return limits
	}
	limits.StatementTimeout = min(limits.StatementTimeout, max(time.Until(deadline)-settling, shortest))
	return limits
}
