package ghostuser

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/batch"
)

const (
	holdEvery = time.Second
	// A run that holds looks soon whether it may go on, then less often.
	holdFirst   = 250 * time.Millisecond
	holdLongest = time.Second
	// A wait that is over before a person could read about it is not worth a word.
	worthAWord = 200 * time.Millisecond
	// blockerEvery is how often a batch that goes on waiting asks again for whom.
	blockerEvery = 500 * time.Millisecond
	// remainingCap is where the estimate of a user's remaining rows ends, estimateEvery how often it is made.
	remainingCap  = 10_000
	estimateEvery = 5 * time.Second
	// settling is what a statement near the lease's end leaves of it.
	settling = 300 * time.Millisecond
	// shortest is the least time that a statement gets.
	shortest = 50 * time.Millisecond
)

// paused tells whether the turn is over: its batches are spent, or the run ends. It waits while the engine is asked to
// hold.
func (r *run) paused(ctx context.Context) bool {
	r.hold(ctx)
	return r.left <= 0 || r.ended()
}

// within cuts timeouts to what is left of the lease: a statement that it ends under would count as a loss.
func (r *run) within(limits batch.Limits) batch.Limits {
	if r.deadline.IsZero() {
		return limits
	}
	left := max(time.Until(r.deadline)-settling, shortest)
	limits.StatementTimeout, limits.LockTimeout = min(limits.StatementTimeout, left), min(limits.LockTimeout, left)
	return limits
}

func (r *run) progress(ctx context.Context) {
	r.stats.Batches++
	if r.engine.Progress != nil {
		r.engine.Progress(ctx, r.stats)
	}
}

// waitsFor tells at once what the run waits for from now on; "" is nothing.
func (r *run) waitsFor(ctx context.Context, reason string) {
	if r.stats.WaitingFor == reason {
		return
	}
	r.stats.WaitingFor = reason
	if r.engine.Progress != nil {
		r.engine.Progress(ctx, r.stats)
	}
}

// hold waits while the engine is asked to, at most until the run's end.
func (r *run) hold(ctx context.Context) {
	ask := r.engine.Hold
	if ask == nil || time.Since(r.held) < holdEvery {
		return
	}
	for poll := holdFirst; !r.ended(); poll = min(2*poll, holdLongest) {
		reason := ask(ctx)
		r.held = time.Now()
		r.waitsFor(ctx, reason)
		if reason == "" {
			return
		}
		r.pause(ctx, poll)
	}
	r.waitsFor(ctx, "")
}

// breathe pauses once enough time is owed, so that no more than the duty's share is work.
func (r *run) breathe(ctx context.Context, took time.Duration) {
	s := r.engine.Sizes
	if s.Target == 0 || s.Duty <= 0 || s.Duty >= 1 {
		return
	}
	r.owed += time.Duration(float64(took) * (1/s.Duty - 1))
	if r.owed < s.Target/2 {
		return
	}
	owed := min(r.owed, longestPause)
	r.owed = 0
	r.pause(ctx, owed)
}

// pause does nothing for so long, at most until the run's end.
func (r *run) pause(ctx context.Context, length time.Duration) {
	timer := time.NewTimer(min(length, time.Until(r.until)))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.stop.Done():
	case <-ctx.Done():
	}
}

// watch finds out whom a batch waits for, until the function that it returns is called, which tells the last answer.
// Between the two nobody else touches the statistics.
func (r *run) watch(ctx context.Context) (end func() string) {
	ask := r.engine.Blocker
	if ask == nil {
		return func() string { return "" }
	}
	watching, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	last := ""
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
			if reason := ask(watching); watching.Err() == nil && reason != "" {
				last = reason
				r.waitsFor(ctx, reason)
			}
			timer.Reset(blockerEvery)
		}
	}()
	return func() string {
		cancel()
		<-done
		r.waitsFor(ctx, "")
		return last
	}
}

// estimate notes how much is left of a user whose turn is over. It is for people, so it may fail.
func (r *run) estimate(ctx context.Context, j *job, live []*step) error {
	if !j.estimated.IsZero() && time.Since(j.estimated) < estimateEvery {
		return nil
	}
	j.estimated = time.Now()
	sql, args := r.engine.Plan.remainingStatement(r.engine.Session.Names, live, j)
	_, err := r.engine.Session.RunWithin(ctx, r.within(r.engine.Session.Limits), batch.Statement{SQL: sql, Args: args, Scan: func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&j.done.Remaining}, func() error { return nil })
		return err
	}})
	if err != nil && judge(err).verdict == fatal {
		return fmt.Errorf("estimate what remains: %w", err)
	}
	return nil
}
