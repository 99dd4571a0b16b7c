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

// lockTimeout limits the wait for a lease's row that another session is renewing or
// acquiring. The transaction locks rows of clients during that wait.
const lockTimeout = "500ms"

// Reclaimed lists the jobs and leases that were taken from dead clients.
type Reclaimed struct {
	// Jobs are the IDs of River jobs that are available again, or canceled if their
	// cancellation had been requested.
	Jobs []int64
	// Leases are the keys of the ended leases.
	Leases []string
	// Clients are the IDs of the removed clients.
	Clients []string
}

// Reclaim removes the clients that have been silent for too long, gives their running
// jobs back to River without counting an attempt, and ends their leases. It also gives
// back running jobs of clients without a row, if the jobs are older than the silence.
// Leases of holders without a row expire without Reclaim. It takes nothing from its own
// client. It does nothing during the first interval after a silence of its own, because
// other clients may not have resumed their heartbeats yet. Several clients may call
// Reclaim concurrently: each job and lease is reclaimed once.
func (h *Heart) Reclaim(ctx context.Context) (taken Reclaimed, err error) {
	ctx, cancel := context.WithTimeout(ctx, h.operationTimeout())
	defer cancel()
	if h.mayNotReclaim() {
		return taken, nil
	}
	silence := h.silence().Seconds()
	found, err := h.DB.AsyncQueries().ClientsDead(ctx, h.ClientID, silence)
	if err != nil {
		return taken, fmt.Errorf("query dead clients: %w", err)
	}
	// Check again: this client may have missed heartbeats and resumed during the query,
	// and must not reclaim yet.
	if !found || h.mayNotReclaim() {
		return taken, nil
	}
	return h.removeClients(ctx, func(queries *dbsqlc.Queries) ([]string, error) {
		return queries.ClientsRemoveSilent(ctx, h.ClientID, silence)
	})
}

func (h *Heart) mayNotReclaim() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	silent := !h.lastBeat.IsZero() && time.Since(h.lastBeat) > h.silence()
	return silent || time.Now().Before(h.noReclaimBefore)
}

// removeClients removes clients and, in the same transaction, gives back their jobs and
// ends their leases.
func (h *Heart) removeClients(ctx context.Context, remove func(*dbsqlc.Queries) ([]string, error)) (Reclaimed, error) {
	var (
		clients []string
		leases  []dbsqlc.ClientLeasesExpireRow
		jobs    []dbsqlc.JobsGiveBackRow
	)
	// READ COMMITTED rechecks a row that changed while the statement waited for its lock.
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

// giveBack makes the running jobs of removed clients available again, and also the jobs
// with the IDs own of this client. It notifies River's queues.
func (h *Heart) giveBack(ctx context.Context, queries *dbsqlc.Queries, clients []string,
	own []int64,
) ([]dbsqlc.JobsGiveBackRow, error) {
	jobs, err := queries.JobsGiveBack(ctx, dbsqlc.JobsGiveBackParams{
		Clients: clients, SilenceSeconds: h.silence().Seconds(), Self: h.ClientID, Own: own,
	})
	if err != nil {
		return nil, fmt.Errorf("return jobs to the queue: %w", err)
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

// report logs and returns the reclaimed clients, leases and jobs. Its caller has
// committed the transaction.
func (h *Heart) report(ctx context.Context, clients []string, leases []dbsqlc.ClientLeasesExpireRow,
	jobs []dbsqlc.JobsGiveBackRow,
) Reclaimed {
	taken := Reclaimed{Clients: clients}
	for _, id := range clients {
		if id != h.ClientID {
			h.Logger.WarnContext(ctx, "client_declared_dead", "client_id", id, "silence_ms",
				h.silence().Milliseconds())
		}
	}
	for _, l := range leases {
		taken.Leases = append(taken.Leases, l.Key)
		h.Logger.WarnContext(ctx, "lease_reclaimed", "key", l.Key, "holder", l.Holder)
	}
	for _, j := range jobs {
		taken.Jobs = append(taken.Jobs, j.ID)
		h.Logger.WarnContext(ctx, "job_reclaimed", "job_id", j.ID, "kind", j.Kind, "client_id", j.ClientID, "state",
			j.State)
	}
	return taken
}

// TrackJob records that a goroutine works on a job until it calls done. The goroutine
// must call done after the transaction that ends the job.
func (h *Heart) TrackJob(id int64) (done func()) {
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

// GiveBackLost gives back jobs that River fetched for this client although the response
// was lost. The rows of these jobs are marked as running, and block jobs with the same
// kind and arguments, but no goroutine works on them. A job counts as lost if no
// goroutine works on it at two consecutive calls, because River takes a while to record
// the end of a failed job. Only one goroutine may call GiveBackLost.
func (h *Heart) GiveBackLost(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, h.operationTimeout())
	defer cancel()
	// The tracked jobs are read before the rows, so that a job that ends in between
	// counts as being processed.
	worked := h.workedJobs()
	running, err := h.DB.AsyncQueries().ClientJobs(ctx, h.ClientID)
	if err != nil {
		return fmt.Errorf("list own jobs: %w", err)
	}
	idle, lost := map[int64]bool{}, []int64{}
	for _, id := range running {
		if worked[id] {
			continue
		}
		idle[id] = true
		if h.idle[id] {
			lost = append(lost, id)
		}
	}
	if h.idle = idle; len(lost) == 0 {
		return nil
	}
	return h.giveBackOwn(ctx, lost)
}

func (h *Heart) giveBackOwn(ctx context.Context, ids []int64) error {
	var jobs []dbsqlc.JobsGiveBackRow
	err := pgx.BeginTxFunc(ctx, h.DB.Async(), pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) (err error) {
		jobs, err = h.giveBack(ctx, h.DB.Names.Queries(tx), nil, ids)
		return err
	})
	if err != nil {
		return fmt.Errorf("return own jobs to the queue: %w", err)
	}
	h.report(ctx, nil, nil, jobs)
	return nil
}

func (h *Heart) workedJobs() map[int64]bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	worked := make(map[int64]bool, len(h.working))
	for id := range h.working {
		worked[id] = true
	}
	return worked
}
