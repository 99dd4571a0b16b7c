package jobrun

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"sexton/internal/dbsqlc"
)

// tidyEvery is how often one process looks for runs that were left open without their
// holder having had the lease. A busy worker runs many passes per second, and each look
// costs as much as a small batch.
const tidyEvery = time.Minute

// unbroken is how often it looks for the latter where the lease has been its own all the
// while: only a process that died while it was being refused the lease has left any.
const unbroken = 5 * time.Minute

// pruneEvery is how often one process removes history past its time; where there was as
// much as one look removes, it looks again after tidyEvery.
const pruneEvery, pruneMost = 10 * time.Minute, 1000

// tidied is a process's knowledge about the history of the passes under one lease, or of
// all those of a kind whose passes run side by side.
type tidied struct {
	// token is that of the last pass, closed when open runs were last looked for, prune
	// when history is next.
	token         int64
	closed, prune time.Time
}

// abandon closes the runs of holders that died. Where the lease has been with this
// process since it looked last, and the ends of all its passes are recorded, there are
// none.
func (r *Runner) abandon(ctx context.Context, queries *dbsqlc.Queries, spec Spec, token, runID int64) error {
	if !r.passed(spec.history(), token) {
		return nil
	}
	if err := queries.RunsAbandon(ctx, spec.Kind, spec.Database, runID); err != nil {
		return fmt.Errorf("close abandoned runs of %s: %w", spec.Kind, err)
	}
	r.note(spec.history(), func(t *tidied) { t.token, t.closed = token, time.Now() })
	return nil
}

// abandonOld closes, now and then, the runs of a kind whose passes run side by side: the
// ones that began so long ago that the worker that left them open is gone.
func (r *Runner) abandonOld(ctx context.Context, queries *dbsqlc.Queries, spec Spec) error {
	due := false
	r.note(spec.history(), func(t *tidied) {
		if due = time.Since(t.closed) >= tidyEvery; due {
			t.closed = time.Now()
		}
	})
	if !due {
		return nil
	}
	old := dbsqlc.RunsAbandonOldParams{
		Kind: spec.Kind, Database: spec.Database, Long: spec.Long,
		Holder: r.Leases.Holder,
	}
	r.mu.Lock()
	old.Live = slices.Collect(maps.Keys(r.live))
	r.mu.Unlock()
	if err := queries.RunsAbandonOld(ctx, old); err != nil {
		return fmt.Errorf("close abandoned runs of %s: %w", spec.Kind, err)
	}
	return nil
}

// history is the name under which the process remembers what it knows of a pass's like.
func (s Spec) history() string {
	if s.Shared || s.LeaseKey == "" {
		return s.Kind + ":" + s.Database
	}
	return s.LeaseKey
}

// forget makes the next pass look for runs without an end.
func (r *Runner) forget(key string) {
	r.note(key, func(t *tidied) { t.closed = time.Time{} })
}

// passed reports whether the lease may have been with another holder since the last look,
// or that is long ago.
func (r *Runner) passed(key string, token int64) bool {
	passed := true
	r.note(key, func(t *tidied) {
		passed = token != t.token+1 || time.Since(t.closed) >= unbroken
		if !passed {
			t.token = token
		}
	})
	return passed
}

// tidy removes history and events past their time, a bounded number of each.
func (r *Runner) tidy(ctx context.Context, queries *dbsqlc.Queries, spec Spec) error {
	prune := false
	r.note(spec.history(), func(t *tidied) {
		now := time.Now()
		if prune = !now.Before(t.prune); prune {
			t.prune = now.Add(tidyEvery)
		}
	})
	if !prune {
		return nil
	}
	most, err := queries.RunsPrune(ctx)
	if err != nil {
		return fmt.Errorf("prune runs: %w", err)
	}
	for _, db := range spec.Fences {
		pruned, err := db.AsyncQueries().EventsPrune(ctx)
		if err != nil {
			return fmt.Errorf("prune events in database %s: %w", db.Name, err)
		}
		most = max(most, pruned)
	}
	if most < pruneMost {
		r.note(spec.history(), func(t *tidied) { t.prune = time.Now().Add(pruneEvery) })
	}
	return nil
}

// note reads and changes what is known under one lease.
func (r *Runner) note(key string, change func(*tidied)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.tidied == nil {
		r.tidied = map[string]tidied{}
	}
	known := r.tidied[key]
	change(&known)
	r.tidied[key] = known
}
