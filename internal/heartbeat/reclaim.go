package heartbeat

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/dbsqlc"
	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
)

// lockTimeout bounds the wait for the row of a lease that is being renewed or taken just
// now. The transaction holds rows of clients meanwhile.
const lockTimeout = "500ms"

// Reclaimed counts what was taken from dead clients.
type Reclaimed struct {
	// Jobs are the IDs of River jobs that are available again, or cancelled where that
	// had been asked for.
	Jobs []int64
	// Leases are keys.
	Leases []string
	// Clients are those whose rows were removed.
	Clients []string
}

// Reclaim removes the clients that have been silent for too long, gives their running
// jobs back to River without costing an attempt, and ends their leases. Running jobs of
// clients that have no row are given back once they are older than the silence; leases of
// holders that never had one are left to their own end. It takes nothing from its own
// client. It does nothing during the first interval after a silence of its own, in which
// the others may not have come back yet. Several callers may reclaim at once, each thing
// goes to one.
func (h *Heart) Reclaim(ctx context.Context) (taken Reclaimed, err error) {
	ctx, cancel := context.WithTimeout(ctx, h.operationTimeout())
	defer cancel()
	if h.holdsBack() {
		return taken, nil
	}
	silence := h.silence().Seconds()
	found, err := h.DB.AsyncQueries().ClientsDead(ctx, h.ClientID, silence)
	if err != nil {
		return taken, fmt.Errorf("look for dead clients: %w", err)
	}
	if !found || h.holdsBack() { // By a beat meanwhile.
		return taken, nil
	}
	return h.bury(ctx, func(queries *dbsqlc.Queries) ([]string, error) {
		return queries.ClientsRemoveSilent(ctx, h.ClientID, silence)
	})
}

func (h *Heart) holdsBack() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	silent := !h.lastBeat.IsZero() && time.Since(h.lastBeat) > h.silence()
	return silent || time.Now().Before(h.noReclaimBefore)
}

// bury removes clients and, in the same transaction, takes what they had.
func (h *Heart) bury(ctx context.Context, remove func(*dbsqlc.Queries) ([]string, error)) (Reclaimed, error) {
	var (
		clients []string
		leases  []dbsqlc.ClientLeasesExpireRow
		jobs    []dbsqlc.JobsGiveBackRow
	)
	// A later snapshot per statement: what was locked a moment ago may have changed.
	err := pgx.BeginTxFunc(ctx, h.DB.Async(), pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) (err error) {
		if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '"+lockTimeout+"'"); err != nil {
			return fmt.Errorf("set lock timeout: %w", err)
		}
		queries := h.DB.Names.Queries(tx)
		if clients, err = remove(queries); err != nil {
			return fmt.Errorf("remove clients: %w", err)
		}
		if leases, err = queries.ClientLeasesExpire(ctx, clients); err != nil {
			return fmt.Errorf("end leases of removed clients: %w", err)
		}
		jobs, err = h.giveBack(ctx, queries, clients, nil)
		return err
	})
	if err != nil {
		return Reclaimed{}, fmt.Errorf("reclaim from dead clients: %w", err)
	}
	return h.report(ctx, clients, leases, jobs), nil
}

// giveBack gives the jobs of removed clients back, and those of its own without a
// goroutine.
func (h *Heart) giveBack(ctx context.Context, queries *dbsqlc.Queries, clients []string,
	own []int64,
) ([]dbsqlc.JobsGiveBackRow, error) {
	jobs, err := queries.JobsGiveBack(ctx, dbsqlc.JobsGiveBackParams{
		Clients: clients, SilenceSeconds: h.silence().Seconds(), Self: h.ClientID, Own: own,
	})
	if err != nil {
		return nil, fmt.Errorf("give back jobs: %w", err)
	}
	queues := []string{}
	for _, j := range jobs {
		if j.State == "available" {
			queues = append(queues, j.Queue)
		}
	}
	if len(queues) == 0 {
		return jobs, nil
	}
	err = queries.QueuesNotify(ctx, pgcatalog.Schema, queues)
	return jobs, problem.Doing(err, "notify queues")
}

// report logs what was taken, once that is durable.
func (h *Heart) report(ctx context.Context, clients []string, leases []dbsqlc.ClientLeasesExpireRow,
	jobs []dbsqlc.JobsGiveBackRow,
) Reclaimed {
	taken := Reclaimed{Clients: clients}
	for _, id := range clients {
		if id != h.ClientID {
			h.Logger.WarnContext(ctx, "client taken for dead", "client_id", id, "silence_ms",
				h.silence().Milliseconds())
		}
	}
	for _, l := range leases {
		taken.Leases = append(taken.Leases, l.Key)
		h.Logger.WarnContext(ctx, "lease reclaimed", "key", l.Key, "holder", l.Holder)
	}
	for _, j := range jobs {
		taken.Jobs = append(taken.Jobs, j.ID)
		h.Logger.WarnContext(ctx, "job reclaimed", "job_id", j.ID, "kind", j.Kind, "client_id", j.ClientID, "state",
			j.State)
	}
	return taken
}

// Work notes that a goroutine works on a job, until it calls what is returned: after the
// transaction that ends the job.
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

// GiveBackLost gives back jobs that River fetched for this client although the answer was
// lost. They are running by their rows, block others of their kind and arguments, and no
// worker works on them. A job counts as lost at the second call without a goroutine:
// River takes a while to record how a failed one ended. Only one goroutine may call it.
func (h *Heart) GiveBackLost(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, h.operationTimeout())
	defer cancel()
	// Read before the rows: a job that ends in between counts as worked on.
	worked := h.worked()
	running, err := h.DB.AsyncQueries().ClientJobs(ctx, h.ClientID)
	if err != nil {
		return fmt.Errorf("look at own jobs: %w", err)
	}
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
}

func (h *Heart) giveBackLost(ctx context.Context, ids []int64) error {
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
