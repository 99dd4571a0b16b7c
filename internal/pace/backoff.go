package pace

import (
	"context"
	"time"
)

// Backoff returns the pause after the given number of consecutive failures that other
// sessions caused.
func Backoff(failures int) time.Duration {
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

// LockBackoff delays retries of work that met a lock of another session. The zero value
// does not wait.
type LockBackoff struct {
	// Failures is the number of consecutive tries that met a lock. Reason describes the
	// lock that the last try met.
	Failures int
	Reason   string

	until time.Time
}

// Fail starts a backoff after a try that met a lock. Each consecutive backoff is longer.
// Fail does nothing during a backoff, since one try may meet several locks.
func (b *LockBackoff) Fail(reason string) {
	if b.Waits() {
		return
	}
	b.Failures++
	b.Reason, b.until = reason, time.Now().Add(Backoff(b.Failures))
}

// Waits reports whether the next try is not due yet.
func (b *LockBackoff) Waits() bool { return time.Now().Before(b.until) }

// backoffStep is the longest time that one call of Run.AwaitRetry waits.
const backoffStep = 100 * time.Millisecond

// AwaitRetry waits for at most backoffStep, so that its caller can renew leases, and
// reports the lock as the reason for waiting.
func (r *Run) AwaitRetry(ctx context.Context, b *LockBackoff) {
	r.Waits(ctx, WaitLock, b.Reason)
	r.Pause(ctx, min(backoffStep, time.Until(b.until)))
	if !b.Waits() || r.Ended() {
		r.Waits(ctx, "", "")
	}
}
