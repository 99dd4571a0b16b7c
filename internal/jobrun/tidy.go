package jobrun

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"sexton/internal/dbsqlc"
)

// tidyEvery is the minimum time between two searches of a process for open runs of dead
// workers whose lease it did not take over. A busy worker runs many passes per second,
// and each search costs as much as a small batch.
const tidyEvery = time.Minute

// sameHolderEvery is the minimum time between two such searches while this process keeps
// the lease. In that time only a process that died while its acquisition was refused can
// have left an open run.
const sameHolderEvery = 5 * time.Minute

// pruneEvery is the interval at which one process removes old history. pruneMost is the
// number of rows that one statement removes at most. If a statement removed that many
// rows, the next one runs after tidyEvery.
const pruneEvery, pruneMost = 10 * time.Minute, 1000

// history is the state that a process keeps about the history of the passes under one
// lease, or of all Shared passes of a kind.
type history struct {
	// token is the fencing token of the last pass.
	token int64
	// closed is the time at which open runs were last closed. prune is the time at which
	// old history is removed next.
	closed, prune time.Time
}

// abandon closes the open runs of dead holders. It skips the statement if this process
// has kept the lease since the last call and has recorded the ends of all its passes.
func (r *Runner) abandon(ctx context.Context, queries *dbsqlc.Queries, spec Spec, token, runID int64) error {
	if !r.mustAbandon(spec.historyKey(), token) {
		return nil
	}
	if err := queries.RunsAbandon(ctx, spec.Kind, spec.Database, runID); err != nil {
		return fmt.Errorf("close abandoned runs of %s: %w", spec.Kind, err)
	}
	r.updateHistory(spec.historyKey(), func(h *history) { h.token, h.closed = token, time.Now() })
	return nil
}

// abandonOld closes open runs of Shared passes that began so long ago that their worker
// must be dead. It does so at most once per tidyEvery.
func (r *Runner) abandonOld(ctx context.Context, queries *dbsqlc.Queries, spec Spec) error {
	due := false
	r.updateHistory(spec.historyKey(), func(h *history) {
		if due = time.Since(h.closed) >= tidyEvery; due {
			h.closed = time.Now()
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
	old.Live = slices.Collect(maps.Keys(r.running))
	r.mu.Unlock()
	if err := queries.RunsAbandonOld(ctx, old); err != nil {
		return fmt.Errorf("close abandoned runs of %s: %w", spec.Kind, err)
	}
	return nil
}

// historyKey returns the key under which the runner keeps the history state of the pass.
func (s Spec) historyKey() string {
	if s.Shared || s.LeaseKey == "" {
		return s.Kind + ":" + s.Database
	}
	return s.LeaseKey
}

// forgetHistory makes the next pass search for open runs.
func (r *Runner) forgetHistory(key string) {
	r.updateHistory(key, func(h *history) { h.closed = time.Time{} })
}

// mustAbandon reports whether open runs must be closed now: if another holder may have
// had the lease since the last search, or if that search was more than sameHolderEvery
// ago.
func (r *Runner) mustAbandon(key string, token int64) (must bool) {
	r.updateHistory(key, func(h *history) {
		must = token != h.token+1 || time.Since(h.closed) >= sameHolderEvery
		if !must {
			h.token = token
		}
	})
	return must
}

// prune removes old runs and events, a limited number of each.
func (r *Runner) prune(ctx context.Context, queries *dbsqlc.Queries, spec Spec) error {
	due := false
	r.updateHistory(spec.historyKey(), func(h *history) {
		now := time.Now()
		if due = !now.Before(h.prune); due {
			h.prune = now.Add(tidyEvery)
		}
	})
	if !due {
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
		r.updateHistory(spec.historyKey(), func(h *history) { h.prune = time.Now().Add(pruneEvery) })
	}
	return nil
}

// updateHistory applies change to the history state of a key.
func (r *Runner) updateHistory(key string, change func(*history)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.history == nil {
		r.history = map[string]history{}
	}
	known := r.history[key]
	change(&known)
	r.history[key] = known
}
