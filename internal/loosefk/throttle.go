package loosefk

import (
	"context"
	"time"

	"sexton/internal/fault"
	"sexton/internal/pace"
)

// Throttle lets others slow a run down, and finds out who does. Its functions have a second to answer in; the zero value
// is without.
type Throttle struct {
	// Hold says why no batch may begin now, and "" where one may. It is asked between batches, at most once a second,
	// and again and again while it has a reason.
	Hold func(ctx context.Context) string
	// Blocker says who holds the lock that the running batch waits for, and "" where nobody is known. It is asked from
	// another goroutine while the session of that database is busy, never twice at a time. The context ends with the batch.
	Blocker func(ctx context.Context, database string) string
}

const (
	// Pauses before another try at what others were in the way of.
	backOffFirst   = 10 * time.Millisecond
	backOffLongest = time.Second
)

// backOff is the pause before the next try of a task. The zero value is none.
type backOff struct {
	until  time.Time
	reason string
}

// waitsFor tells at once what the run waits for from now on; "" is nothing.
func (r *run) waitsFor(ctx context.Context, class pace.WaitClass, reason string) {
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

// backOff returns the pause before the next try of a task that others were in the way of. It grows with every failure at the same
// place until a statement goes through there. A waiting pass has waited enough already.
func (r *run) backOff(t task, how pass, err error) backOff {
	f := judge(err, t.reference.Child.Label())
	beaten := f.Verdict == fault.LockTimeout || f.Verdict == fault.Conflict
	if !r.engine.Adaptive.on() || !beaten || r.form(t, how) == waiting {
		return backOff{}
	}
	length := max(backOffFirst, min(2*r.backOffs[t.place()], backOffLongest))
	r.backOffs[t.place()] = length
	return backOff{until: time.Now().Add(length), reason: "the next try at " + f.Table + ", after: " + f.Message}
}

// rest sits out what is left of a task's pause; what has been done since for others counts.
func (r *run) rest(ctx context.Context, t task, how pass) {
	left := time.Until(t.backOff.until)
	if _, open := r.breaker.open(t, how); left <= 0 || open || r.ended() {
		return
	}
	if left >= pace.WorthAWord {
		r.waitsFor(ctx, pace.WaitBackOff, t.backOff.reason)
		defer r.waitsFor(ctx, "", "")
	}
	r.pace.Pause(ctx, left)
}

// watch finds out whom a batch of the waiting pass waits for, until the function that it returns is called. Between
// the two nobody else touches the statistics.
func (r *run) watch(ctx context.Context, database string, form pass) (end func() string) {
	ask := r.engine.Throttle.Blocker
	if ask == nil || form != waiting {
		return r.pace.Watch(ctx, nil)
	}
	return r.pace.Watch(ctx, func(ctx context.Context) string { return ask(ctx, database) })
}
