// Package demo shows Sexton at work: an application deletes parents at random, a worker cleans up after it,
// and a view shows both, until there is nothing left to delete or whoever watches has seen enough.
package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"sexton/internal/definitions"
	"sexton/internal/pgschema"
)

// Site is a database with the reference application and all that Sexton installs.
type Site struct {
	Pool        *pgxpool.Pool
	Names       pgschema.Names
	Definitions []definitions.Definition
	// Kind is the job that cleans up after deleted parents.
	Kind string
	// Rows is how many rows were loaded.
	Rows int64
	// Work runs a worker until its context ends.
	Work func(ctx context.Context) error
	// Activity says in one line what the worker does, or what it waits for, while so many tombstones wait.
	Activity func(ctx context.Context, backlog int64) (string, error)
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

// Run deletes, works and shows until ctx ends or, with drain, until everything that was to be deleted
// is deleted and cleaned up after. Then the summary counts the orphans, too. Without, the end of ctx is how
// a demo ends and no error.
func Run(ctx context.Context, site Site, drain bool) (Summary, error) {
	watch := &watch{site: site, stall: stallTimeout}
	// A kept cluster has the runs of earlier demos.
	if err := site.Pool.QueryRow(ctx, site.Names.Render(lastRunSQL)).Scan(&watch.earlier); err != nil {
		if ctx.Err() != nil && !drain {
			return State{}.summary(site, 0), nil
		}
		return Summary{}, fmt.Errorf("read runs: %w", err)
	}
	watch.lastSettled = watch.earlier
	watch.settled = Totals{Deleted: map[string]int64{}, Updated: map[string]int64{}}
	running, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	worker := make(chan error, 1)
	// The worker ends last, and in order: its batches are not cut off by the end of the demo.
	working, stopWorker := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWorker()
	go func() {
		err := site.Work(working)
		if working.Err() == nil {
			stop(fmt.Errorf("the worker ended: %w", cmp.Or(err, errors.New("nobody told it to"))))
		}
		worker <- err
	}()

	began := time.Now()
	times := newStopwatch(site.Pool, site.Names)
	app, err := newApplication(running, site.Pool, times, paceOf(drain))
	if err != nil {
		stopWorker()
		if err = errors.Join(err, <-worker); ctx.Err() != nil && !drain {
			err = nil
		}
		return State{}.summary(site, time.Since(began)), err
	}
	var parts sync.WaitGroup
	for _, part := range []func(context.Context) error{app.run, times.run} {
		parts.Go(func() {
			if err := part(running); err != nil && running.Err() == nil {
				stop(err)
			}
		})
	}

	watch.app, watch.times, watch.began = app, times, began
	state, err := watch.until(running, drain)
	if cause := context.Cause(running); cause != nil {
		err = cause
	}
	took := time.Since(began)
	stop(nil)
	parts.Wait()
	stopWorker()
	if failed := <-worker; err == nil && failed != nil {
		err = fmt.Errorf("stop worker: %w", failed)
	}
	if ctx.Err() != nil && !drain {
		err = nil
	}
	summary := state.summary(site, took)
	if err != nil || ctx.Err() != nil {
		return summary, err
	}
	left, err := orphans(ctx, site)
	if err != nil {
		return summary, err
	}
	summary.OrphansLeft = &left
	if left > 0 {
		return summary, fmt.Errorf("%d orphans are left", left)
	}
	return summary, nil
}
