package demo

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// inBursts is the part of the actions that goes in large requests.
	inBursts = 0.25
	// step is the pause between two requests of the application, burstEvery that between two large ones.
	step       = 50 * time.Millisecond
	burstEvery = 6 * time.Second
)

// deadlock is the SQLSTATE deadlock_detected.
const deadlock = "40P01"

// application plays one scene: mostly one action at a time, now and then many at once.
type application struct {
	scene     Scene
	times     *stopwatch
	planned   int64
	perSecond float64
	acted     atomic.Int64
	done      atomic.Bool
}

func newApplication(ctx context.Context, scene Scene, times *stopwatch, pace Pace) (*application, error) {
	planned, err := scene.Plan(ctx)
	if err != nil {
		return nil, fmt.Errorf("plan %s: %w", scene.Script().Title, err)
	}
	return &application{
		scene: scene, times: times, planned: planned,
		perSecond: max(pace.Slowest, float64(planned)/pace.Length.Seconds()),
	}, nil
}

// run acts until the plan is fulfilled or ctx ends. A quarter goes in bursts, so that there is a backlog to see.
func (a *application) run(ctx context.Context) error {
	defer a.done.Store(true)
	tick := time.NewTicker(step)
	defer tick.Stop()
	singles, burst := 0.0, time.Now()
	for {
		for singles += a.perSecond * (1 - inBursts) * step.Seconds(); singles >= 1; singles-- {
			if more, err := a.act(ctx, 1); err != nil || !more {
				return err
			}
		}
		if time.Since(burst) >= burstEvery {
			burst = time.Now()
			if more, err := a.act(ctx, max(1, int(a.perSecond*inBursts*burstEvery.Seconds()))); err != nil || !more {
				return err
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// act does up to limit actions, as long as there are planned ones left.
func (a *application) act(ctx context.Context, limit int) (more bool, err error) {
	limit = int(min(int64(limit), a.planned-a.acted.Load()))
	if limit <= 0 {
		return false, nil
	}
	acted, more, err := a.scene.Act(ctx, limit)
	// Two sessions that lock the same rows in different orders: an application tries again, this one later.
	if failed, ok := errors.AsType[*pgconn.PgError](err); ok && failed.Code == deadlock {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	a.times.committed(acted)
	sofar := a.acted.Add(int64(len(acted)))
	return more && sofar < a.planned, nil
}
