package loosefk

import (
	"context"

	"sexton/internal/pace"
)

// Throttle lets others slow a run down, and finds out who does. Its functions have a second to answer in; the zero value
// is without.
type Throttle struct {
	// Hold says why no batch may begin now, and "" where one may. It is asked between batches, at most once a second,
	// and again and again while it has a reason.
	Hold func(ctx context.Context) string
	// Blocker says who holds the lock that the running batch waits for, and "" where no holder is known. It is asked from
	// another goroutine while the session of that database is busy, never twice at a time. The context ends with the batch.
	Blocker func(ctx context.Context, database string) string
	// Share, if set, decides in Adaptive.Duty's stead.
	Share pace.Share
}

// waitsFor tells at once what the run waits for from now on; "" is nothing but a table that others have locked, while the run
// does the rest.
func (r *run) waitsFor(ctx context.Context, class pace.WaitClass, reason string) {
	if reason == "" {
		reason, class = r.tables.Reason(), pace.WaitLock
	}
	if r.stats.WaitingFor == reason {
		return
	}
	if reason == "" {
		class = ""
	}
	r.stats.WaitingFor, r.stats.WaitingClass = reason, class
	if r.engine.Progress != nil {
		r.engine.Progress(ctx, r.stats)
	}
}

// watch finds out whom a batch of the waiting pass waits for, until the function that it returns is called. Between
// the two no other goroutine touches the statistics.
func (r *run) watch(ctx context.Context, database string, form pass) (end func() string) {
	ask := r.engine.Throttle.Blocker
	if ask == nil || form != waiting {
		return r.pace.Watch(ctx, nil)
	}
	return r.pace.Watch(ctx, func(ctx context.Context) string { return ask(ctx, database) })
}
