package riverjobs

import (
	"errors"
	"sync"
	"time"

	"sexton/internal/blobstore"
)

// refusal is what a process knows of a store that cannot be used as it is configured. Every diff would meet the same refusal, so
// after the first one all jobs of the process wait together, and one of them tells of it. The zero value is ready to use.
type refusal struct {
	mu    sync.Mutex
	pause time.Duration
	until time.Time
}

// wait returns how much of the pause is left, or 0.
func (r *refusal) wait(now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return max(0, r.until.Sub(now))
}

// begin begins a pause after a refusal: firstPause, twice as long each time, longestPause at most. It returns false where one is
// under way: whoever was at work when it began has met what it was begun for.
func (r *refusal) begin(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.Before(r.until) {
		return false
	}
	r.pause = min(max(2*r.pause, firstPause), longestPause)
	r.until = now.Add(r.pause)
	return true
}

// end says that the store has been used.
func (r *refusal) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pause, r.until = 0, time.Time{}
}

func asRefusal(err error) (*blobstore.AccessError, bool) {
	return errors.AsType[*blobstore.AccessError](err)
}
