package jobrun

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"sexton/internal/database"
	"sexton/internal/dbsqlc"
)

// tidyEvery is how often one process looks for counts of runs that have ended, and for runs that were left open without
// their holder having had the lease. A busy worker runs many passes per second, and each look costs as much as
// a small batch.
const tidyEvery = time.Minute

// unbroken is how often it looks for the latter where the lease has been its own all the while: only a process that died while it was being
// refused the lease has left any.
const unbroken = 5 * time.Minute

// pruneEvery is how often one process removes history past its time; where there was as much as one look removes, it looks again after tidyEvery.
const pruneEvery, pruneMost = 10 * time.Minute, 1000

// tidied is a process's knowledge about the history of the passes under one lease, or of all those of a kind whose passes
// run side by side.
type tidied struct {
	// token is that of the last pass, closed and settled when runs and their counts were last looked for, prune when history is next.
	token                  int64
	closed, settled, prune time.Time
	// uncounted reports that a run was closed whose statistics may miss what its batches have counted.
	uncounted bool
}

// abandon closes the runs of holders that died. Where the lease has been with this process since it looked last,
// and the ends of all its passes are recorded, there are none.
func (r *Runner) abandon(ctx context.Context, queries *dbsqlc.Queries, spec Spec, token, runID int64) error {
	if !r.passed(spec.history(), token) {
		return nil
	}
	closed, err := queries.RunsAbandon(ctx, spec.Kind, spec.Database, runID)
	if err != nil {
		return fmt.Errorf("close abandoned runs of %s: %w", spec.Kind, err)
	}
	r.note(spec.history(), func(t *tidied) { t.token, t.closed, t.uncounted = token, time.Now(), t.uncounted || closed > 0 })
	return nil
}

// abandonOld closes, now and then, the runs of a kind whose passes run side by side: the ones that began so long ago that
// the worker that left them open is gone.
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
	old := dbsqlc.RunsAbandonOldParams{Kind: spec.Kind, Database: spec.Database, Long: spec.Long, Holder: r.Leases.Holder}
	r.mu.Lock()
	old.Live = slices.Collect(maps.Keys(r.live))
	r.mu.Unlock()
	closed, err := queries.RunsAbandonOld(ctx, old)
	if err != nil {
		return fmt.Errorf("close abandoned runs of %s: %w", spec.Kind, err)
	}
	r.note(spec.history(), func(t *tidied) { t.uncounted = t.uncounted || closed > 0 })
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

// passed reports whether the lease may have been with another holder since the last look, or that is long ago.
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

// tidy hands on what batches have counted for runs that have ended, the failed one among them, and removes history and events past their time, a
// bounded number of each.
func (r *Runner) tidy(ctx context.Context, log *slog.Logger, queries *dbsqlc.Queries, spec Spec, written []database.Database, failed int64) error {
	settle, prune := failed > 0, false
	r.note(spec.history(), func(t *tidied) {
		now := time.Now()
		if prune = !now.Before(t.prune); prune {
			t.prune = now.Add(tidyEvery)
		}
		if len(written) == 0 {
			return // A pass that was refused its lease leaves the counts to the next one.
		}
		settle = settle || t.uncounted || now.Sub(t.settled) >= tidyEvery
		if settle {
			t.settled, t.uncounted = now, false
		}
	})
	if settle {
		for _, db := range written {
			r.settle(ctx, log, db, failed)
		}
	}
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
