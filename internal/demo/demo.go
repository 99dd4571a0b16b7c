package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"sexton/internal/definitions"
	"sexton/internal/pgcatalog"
)

// Site is a database with the reference application and all that Sexton installs.
type Site struct {
	Pool        *pgxpool.Pool
	Names       pgcatalog.Names
	Definitions []definitions.Definition
	// Kinds are the jobs that are enabled. Jobs with a scene are shown.
	Kinds []string
	// Objects is the folder to which diffs are moved.
	Objects string
	// Undo takes a deletion back, and returns how many rows came back; needed for UndoKind alone.
	Undo func(ctx context.Context, deletion int64) (rows int64, err error)
	// Rows is how many rows were loaded.
	Rows int64
	// Work runs a worker until its context ends.
	Work func(ctx context.Context) error
	// Activity says by kind, in one line each, what the worker does, or what it waits for, while so much waits for each.
	Activity func(ctx context.Context, backlog map[string]int64) (map[string]string, error)
	View     View
}

// View shows what happens. Its methods are called from one goroutine at a time.
type View interface {
	// Loaded tells how many rows of the sample data are there.
	Loaded(done, total int64)
	// Show takes the state of now, about every Interval.
	Show(state State)
	Interval() time.Duration
	// Close ends the view; what it has shown stays.
	Close()
}

// stallTimeout is how long a demo that is to end by itself goes on without any progress.
const stallTimeout = 2 * time.Minute

// Run plays all scenes and shows them until ctx ends or, with drain, until everything that was to be done is done and
// its consequences, too. Then the scenes are checked. Without drain, the end of ctx is how a demo ends and no error.
func Run(ctx context.Context, site Site, drain bool) (_ Summary, err error) {
	defer func() {
		if ctx.Err() != nil && !drain {
			err = nil
		}
	}()
	// A kept cluster has the runs of earlier demos.
	var earlier int64
	if err := site.Pool.QueryRow(ctx, site.Names.Render(query("last_run"))).Scan(&earlier); err != nil {
		return newSummary(site, State{}, 0), fmt.Errorf("read runs: %w", err)
	}
	running, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	worker := make(chan error, 1)
	// The worker ends last, and in order: its batches are not cut off by the end of the demo.
	working, stopWorker := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWorker()
	go func() {
		err := site.Work(working)
		if working.Err() == nil {
			stop(fmt.Errorf("the worker ended: %w", cmp.Or(err, errors.New("it was not told to"))))
		}
		worker <- err
	}()

	on := newStage(site, !drain)
	w := &watch{site: site, on: on, earlier: earlier, stall: stallTimeout, began: time.Now()}
	for _, scene := range scenes(on, site) {
		app, err := newApplication(running, on, scene, scene.Script().pace(!drain))
		if err != nil {
			stopWorker()
			return newSummary(site, State{}, time.Since(w.began)), errors.Join(err, <-worker)
		}
		w.scenes = append(w.scenes, app)
	}
	var parts sync.WaitGroup
	for _, app := range w.scenes {
		for _, part := range []func(context.Context) error{app.run, app.times.run} {
			parts.Go(func() {
				if err := part(running); err != nil && running.Err() == nil {
					stop(err)
				}
			})
		}
	}

	state, err := w.until(running, drain)
	if cause := context.Cause(running); cause != nil {
		err = cause
	}
	took := time.Since(w.began)
	stop(nil)
	parts.Wait()
	stopWorker()
	if failed := <-worker; err == nil && failed != nil {
		err = fmt.Errorf("stop worker: %w", failed)
	}
	if err == nil {
		err = w.tell(ctx, &state)
	}
	summary := newSummary(site, state, took)
	if err != nil || ctx.Err() != nil {
		return summary, err
	}
	err = check(ctx, w.scenes, &summary)
	return summary, err
}

// check adds what the scenes' checks find to the summary. A fault is an error.
func check(ctx context.Context, playing []*application, summary *Summary) error {
	var faults error
	for i, app := range playing {
		found, err := app.scene.Check(ctx)
		if err != nil {
			return err
		}
		summary.found(i, found)
		for _, f := range found {
			if f.Fault && f.Count > 0 {
				faults = errors.Join(faults, fmt.Errorf("%d %s", f.Count, f.Text))
			}
		}
	}
	return faults
}

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
	// rate is that of the rows that its job changes.
	rate rate
}

func newApplication(ctx context.Context, on stage, scene Scene, pace Pace) (*application, error) {
	planned, err := scene.Plan(ctx)
	if err != nil {
		return nil, fmt.Errorf("plan %s: %w", scene.Script().Title, err)
	}
	return &application{
		scene: scene, times: newStopwatch(on, scene.Script()), planned: planned,
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
	if pgcatalog.SQLState(err) == deadlock {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	a.times.committed(acted)
	sofar := a.acted.Add(int64(len(acted)))
	return more && sofar < a.planned, nil
}
