package pace

import (
	"context"
	"time"
)

// PauseAfter is the pause after so many failures in a row, before work is tried again
// that others are in the way of.
func PauseAfter(failures int) time.Duration {
	switch failures {
	case 0, 1:
		return time.Second
	case 2:
		return 2 * time.Second
	case 3:
		return 5 * time.Second
	default:
		return 15 * time.Second
	}
}

// Blocked is work that waits for a lock of another session. That is no failure. The zero
// value does not wait.
type Blocked struct {
	// Failures counts the tries in a row.
	Failures int
	// Reason is what the work waits for, By the virtual transaction that holds the lock,
	// if it was found.
	Reason, By string

	until, checked time.Time
}

// Again records a further try in vain. It does nothing while b waits, as one try may meet
// several locks.
func (b *Blocked) Again(reason, by string) {
	if b.Waits() {
		return
	}
	b.Failures++
	b.Reason, b.By, b.until = reason, by, time.Now().Add(PauseAfter(b.Failures))
}

// Waits reports whether the next try is not due yet.
func (b *Blocked) Waits() bool { return time.Now().Before(b.until) }

// checkEvery is how often a waiting run checks whether the lock holder's transaction
// ended.
const checkEvery = 250 * time.Millisecond

// check ends the wait if the lock holder's transaction has ended.
func (b *Blocked) check(ctx context.Context, over func(ctx context.Context, transaction string) (bool, error)) error {
	if !b.Waits() || b.By == "" || time.Since(b.checked) < checkEvery {
		return nil
	}
	b.checked = time.Now()
	ended, err := over(ctx, b.By)
	if ended {
		b.until = time.Time{}
	}
	return err
}

// idlePause is the pause of a run that has nothing to do but wait.
const idlePause = 100 * time.Millisecond

// Idle pauses for a moment while b waits, and reports what for.
func (r *Run) Idle(ctx context.Context, b *Blocked, over func(ctx context.Context, transaction string) (bool,
	error),
) error {
	r.Waits(ctx, WaitLock, b.Reason)
	r.Pause(ctx, idlePause)
	err := b.check(ctx, over)
	if err != nil || !b.Waits() || r.Ended() {
		r.Waits(ctx, "", "")
	}
	return err
}
