package riverjobs

import (
	"sync"
	"time"
)

// backOff is a process's pause after a failure that the next attempt would meet, too: a store that cannot be used as it is
// configured, or a kind that fails as a whole. After the first failure all jobs of the process wait together, and one of them
// reports it. The zero value is ready to use.
type backOff struct {
	mu    sync.Mutex
	pause time.Duration
	until time.Time
}

// wait returns how much of the pause is left, or 0.
func (r *backOff) wait(now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return max(0, r.until.Sub(now))
}

// begin begins a pause after a failure: firstPause, twice as long each time, longestPause at most. It returns false where one is
// under way: a job at work when it began has met the cause of it.
func (r *backOff) begin(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.Before(r.until) {
		return false
	}
	r.pause = min(max(2*r.pause, firstPause), longestPause)
	r.until = now.Add(r.pause)
	return true
}

// end ends the pause: an attempt has succeeded.
func (r *backOff) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pause, r.until = 0, time.Time{}
}
