package heartbeat

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"sexton/internal/dbsqlc"
	"sexton/internal/pulse"
)

// Work notes that a goroutine works on a job, until it calls what is returned: after the transaction that ends the job.
func (h *Heart) Work(id int64) (done func()) {
	add := func(n int) {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.working == nil {
			h.working = map[int64]int{}
		}
		if h.working[id] += n; h.working[id] == 0 {
			delete(h.working, id)
		}
	}
	add(1)
	return func() { add(-1) }
}

// lookForLost gives back jobs that River fetched for this client without hearing of it, since the answer was lost. They are running
// by their rows, block others of their kind and arguments, and no worker works on them. A job counts as such at the second beat
// without a goroutine: River takes a while to record how a failed one ended.
func (h *Heart) lookForLost(ctx context.Context, on dbsqlc.DBTX) (pulse.Then, error) {
	// Before the look at rows: one that ends in between counts as worked on.
	worked := h.worked()
	running, err := h.DB.Names.Queries(on).ClientJobs(ctx, h.ClientID)
	if err != nil {
		return nil, fmt.Errorf("look at own jobs: %w", err)
	}
	return func(ctx context.Context) error {
		missed, again := map[int64]bool{}, []int64{}
		for _, id := range running {
			if worked[id] {
				continue
			}
			missed[id] = true
			if h.missed[id] {
				again = append(again, id)
			}
		}
		if h.missed = missed; len(again) == 0 {
			return nil
		}
		return h.giveBackLost(ctx, again)
	}, nil
}

func (h *Heart) giveBackLost(ctx context.Context, ids []int64) error {
	ctx, cancel := context.WithTimeout(ctx, h.operationTimeout())
	defer cancel()
	var jobs []dbsqlc.JobsGiveBackRow
	err := pgx.BeginTxFunc(ctx, h.DB.Async(), pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) (err error) {
		jobs, err = h.giveBack(ctx, h.DB.Names.Queries(tx), nil, ids)
		return err
	})
	if err != nil {
		return fmt.Errorf("give back own jobs: %w", err)
	}
	h.report(ctx, nil, nil, jobs)
	return nil
}

func (h *Heart) worked() map[int64]bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	worked := make(map[int64]bool, len(h.working))
	for id := range h.working {
		worked[id] = true
	}
	return worked
}
