package ghostuser

import (
	"context"
	"fmt"
	"time"

	"sexton/internal/batch"
	"sexton/internal/pace"
)

const (
	// remainingCap is where the estimate of a user's remaining rows ends, estimateEvery how often it is made.
	remainingCap  = 10_000
	estimateEvery = 5 * time.Second
)

// paused reports whether the turn is over: its batches are spent, or the run ends. It waits while the engine is asked to
// hold.
func (r *run) paused(ctx context.Context) bool {
	r.Pace.Await(ctx)
	return r.left <= 0 || r.Pace.Ended()
}

// within cuts timeouts to what is left of the lease.
func (r *run) within(limits batch.Limits) batch.Limits { return pace.Within(limits, r.frame.Deadline) }

func (r *run) progress(ctx context.Context) {
	r.stats.Batches++
	if r.engine.Progress != nil {
		r.engine.Progress(ctx, r.stats)
	}
}

// waitsFor tells at once what the run waits for from now on; "" is nothing.
func (r *run) waitsFor(ctx context.Context, _ pace.WaitClass, reason string) {
	if r.stats.WaitingFor == reason {
		return
	}
	r.stats.WaitingFor = reason
	if r.engine.Progress != nil {
		r.engine.Progress(ctx, r.stats)
	}
}

// estimate notes how much is left of a user whose turn is over. It is for people, so it may fail.
func (r *run) estimate(ctx context.Context, j *job, live []*step) error {
	if !j.estimated.IsZero() && time.Since(j.estimated) < estimateEvery {
		return nil
	}
	j.estimated = time.Now()
	sql, args := r.engine.Plan.remainingStatement(r.Session.Names, live, j)
	err := r.Send(ctx, r.Session.Limits, batch.Statement{SQL: sql, Args: args, Scan: batch.One(&j.done.Remaining)})
	if err != nil && batch.Judge(err).Verdict == batch.Fatal {
		return fmt.Errorf("estimate what remains: %w", err)
	}
	return nil
}
