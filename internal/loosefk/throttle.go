package loosefk

import (
	"context"
	"time"
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
	holdEvery = time.Second
	// A run that holds looks soon whether it may go on, then less often.
	holdFirst   = 250 * time.Millisecond
	holdLongest = time.Second
	// Pauses before another try at what others were in the way of.
	backOffFirst   = 10 * time.Millisecond
	backOffLongest = time.Second
	// A wait that is over before a person could read about it is not worth a word.
	worthAWord = 200 * time.Millisecond
	// blockerEvery is how often a batch that goes on waiting asks again for whom.
	blockerEvery = 500 * time.Millisecond
)

// WaitClass is the sort of a reason to wait. There are few of them, so that they may label metrics.
type WaitClass string

// The sorts: a replica that is too far behind, a lock that somebody else holds, and the pause after a failure
// that others caused.
const (
	WaitReplica WaitClass = "replica"
	WaitLock    WaitClass = "lock"
	WaitBackOff WaitClass = "back_off"
)

// backOff is the pause before the next try of a task. The zero value is none.
type backOff struct {
	until  time.Time
	reason string
}

// waitsFor tells at once what the run waits for from now on; "" is nothing.
func (r *run) waitsFor(ctx context.Context, class WaitClass, reason string) {
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

// hold waits while the engine is asked to, at most until the run's end.
func (r *run) hold(ctx context.Context) {
	ask := r.engine.Throttle.Hold
	if ask == nil || time.Since(r.held) < holdEvery {
		return
	}
	for poll := holdFirst; !r.ended(); poll = min(2*poll, holdLongest) {
		reason := ask(ctx)
		r.held = time.Now()
		r.waitsFor(ctx, WaitReplica, reason)
		if reason == "" {
			return
		}
		r.pause(ctx, poll)
	}
	r.waitsFor(ctx, "", "")
}

// pause does nothing for so long, at most until the run's end.
func (r *run) pause(ctx context.Context, length time.Duration) {
	timer := time.NewTimer(min(length, time.Until(r.budget.until)))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.stop.Done():
	case <-ctx.Done():
	}
}

// backOff returns the pause before the next try of a task that others were in the way of. It grows with every failure at the same
// place until a statement goes through there. A waiting pass has waited enough already.
func (r *run) backOff(t task, how pass, err error) backOff {
	f := judge(err, t.reference.Child.Label())
	beaten := f.verdict == lockTimeout || f.verdict == conflict
	if !r.engine.Adaptive.on() || !beaten || r.form(t, how) == waiting {
		return backOff{}
	}
	length := max(backOffFirst, min(2*r.backOffs[t.place()], backOffLongest))
	r.backOffs[t.place()] = length
	return backOff{until: time.Now().Add(length), reason: "the next try at " + f.table + ", after: " + f.message}
}

// rest sits out what is left of a task's pause; what has been done since for others counts.
func (r *run) rest(ctx context.Context, t task, how pass) {
	left := time.Until(t.backOff.until)
	if _, open := r.breaker.open(t, how); left <= 0 || open || r.ended() {
		return
	}
	if left >= worthAWord {
		r.waitsFor(ctx, WaitBackOff, t.backOff.reason)
		defer r.waitsFor(ctx, "", "")
	}
	r.pause(ctx, left)
}

// watch finds out whom a batch of the waiting pass waits for, until the function that it returns is called. Between
// the two nobody else touches the statistics.
func (r *run) watch(ctx context.Context, database string, form pass) (end func()) {
	ask := r.engine.Throttle.Blocker
	if ask == nil || form != waiting {
		return func() {}
	}
	watching, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		timer := time.NewTimer(worthAWord)
		defer timer.Stop()
		for {
			select {
			case <-watching.Done():
				return
			case <-timer.C:
			}
			if reason := ask(watching, database); watching.Err() == nil {
				r.waitsFor(ctx, WaitLock, reason)
			}
			timer.Reset(blockerEvery)
		}
	}()
	return func() {
		cancel()
		<-done
		r.waitsFor(ctx, "", "")
	}
}
