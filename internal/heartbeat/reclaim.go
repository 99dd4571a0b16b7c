package heartbeat

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/dbsqlc"
	"sexton/internal/pulse"
)

// lockTimeout bounds the wait for the row of a lease that is being renewed or taken just now. The
// transaction holds rows of clients meanwhile.
const lockTimeout = "500ms"

// The generator of typed queries does not know River's tables, so their SQL stands here. $1 is the own
// client ID, $2 the silence in seconds.
const (
	// lastClient is who runs a running job: River appends the client that fetches.
	lastClient = `job.attempted_by[pg_catalog.cardinality(job.attempted_by)]`

	// orphaned is true of running jobs of clients without a row. Such a client is dead too, or so new that
	// its first beat is still on its way.
	orphaned = `
    job.attempted_at < pg_catalog.clock_timestamp() - pg_catalog.make_interval(secs => $2)
    AND ` + lastClient + ` IS DISTINCT FROM $1
    AND NOT EXISTS (SELECT FROM "sexton".clients AS client WHERE client.client_id = ` + lastClient + `)`

	// lost is true of jobs that the own client has fetched so long ago that their goroutine would be there.
	lost = lastClient + ` = $1 AND job.attempted_at < pg_catalog.clock_timestamp() - interval '10 seconds'`

	// lookSQL costs little where everybody lives, which is nearly always.
	lookSQL = `
SELECT EXISTS (
    SELECT FROM "sexton".clients AS client
    WHERE client.client_id <> $1
      AND (client.seen_at < pg_catalog.clock_timestamp() - pg_catalog.make_interval(secs => $2) OR client.seen_at > pg_catalog.clock_timestamp())
) OR EXISTS (
    SELECT FROM "sexton".river_job AS job
    WHERE job.state = 'running' AND ` + orphaned + `
)`

	// redateSQL is for a server whose clock has been set back: a client that was seen in the future, River's leader elected there,
	// or a job that may be fetched then only, would wait until the clock is there again. River calls a job that waits for its time scheduled, not available.
	redateSQL = `
WITH client AS (
    UPDATE "sexton".clients AS client SET seen_at = pg_catalog.clock_timestamp() WHERE client.seen_at > pg_catalog.clock_timestamp()
), leader AS (
    UPDATE "sexton".river_leader AS leader SET expires_at = pg_catalog.clock_timestamp() WHERE leader.elected_at > pg_catalog.clock_timestamp()
)
UPDATE "sexton".river_job AS job SET scheduled_at = pg_catalog.clock_timestamp()
WHERE job.state = 'available' AND job.scheduled_at > pg_catalog.clock_timestamp()`

	// giveBackSQL does what River does with a job that a shutdown interrupted: the attempt does not count, and
	// a job whose cancelling was asked for is cancelled. A locked row belongs to somebody who is ending that
	// job. $3 is the list of removed clients, $4 that of own jobs without a goroutine.
	giveBackSQL = `
WITH orphan AS (
    SELECT job.id, job.metadata ? 'cancel_attempted_at' AS cancelled
    FROM "sexton".river_job AS job
    WHERE job.state = 'running'
      AND (` + lastClient + ` = ANY ($3::pg_catalog.text[]) OR (` + orphaned + `) OR job.id = ANY ($4::bigint[]) AND ` + lost + `)
    ORDER BY job.id
    FOR UPDATE SKIP LOCKED
)
UPDATE "sexton".river_job AS job
SET state = (CASE WHEN orphan.cancelled THEN 'cancelled' ELSE 'available' END)::"sexton".river_job_state,
    finalized_at = CASE WHEN orphan.cancelled THEN pg_catalog.now() END,
    scheduled_at = CASE WHEN orphan.cancelled THEN job.scheduled_at ELSE pg_catalog.now() END,
    attempt = CASE WHEN orphan.cancelled THEN job.attempt ELSE greatest(job.attempt - 1, 0) END,
    metadata = job.metadata || pg_catalog.jsonb_build_object('sexton:reclaim_count', 1 + CASE
        WHEN pg_catalog.jsonb_typeof(job.metadata -> 'sexton:reclaim_count') = 'number'
        THEN (job.metadata ->> 'sexton:reclaim_count')::integer
        ELSE 0
    END)
FROM orphan
WHERE job.id = orphan.id
RETURNING job.id, job.kind, job.queue, job.state::pg_catalog.text, coalesce(` + lastClient + `, '') AS client_id`

	// notifySQL wakes River's producers; $1 is the schema, $2 the queues.
	notifySQL = `
SELECT pg_catalog.pg_notify(pg_catalog.concat($1::pg_catalog.text, '.river_insert'), pg_catalog.json_build_object('queue', queue)::pg_catalog.text)
FROM pg_catalog.unnest($2::pg_catalog.text[]) AS queue`
)

// Reclaimed counts what was taken from dead clients.
type Reclaimed struct {
	// Jobs are the IDs of River jobs that are available again, or cancelled where that had been asked for.
	Jobs []int64
	// Leases are keys.
	Leases []string
	// Clients are those whose rows were removed.
	Clients []string
}

// job is a row of giveBackSQL, with its columns in order.
type job struct {
	ID       int64
	Kind     string
	Queue    string
	State    string
	ClientID string
}

// Reclaim removes the clients that have been silent for too long, gives their running jobs back to River
// without costing an attempt, and ends their leases. Running jobs of clients that have no row are given back
// once they are older than the silence; leases of holders that never had one are left to their own end. It
// takes nothing from its own client. It does nothing during the first interval after a silence of its own,
// in which the others may not have come back yet. Several callers may reclaim at once, each thing goes to one.
func (h *Heart) Reclaim(ctx context.Context) (taken Reclaimed, err error) {
	ctx, cancel := context.WithTimeout(ctx, h.operationTimeout())
	defer cancel()
	then, err := h.lookForDead(ctx, h.DB.Async(), &taken)
	if err == nil && then != nil {
		err = then(ctx)
	}
	return taken, err
}

func (h *Heart) lookForDead(ctx context.Context, on dbsqlc.DBTX, taken *Reclaimed) (pulse.Then, error) {
	if h.holdsBack() {
		return nil, nil
	}
	silence := h.silence().Seconds()
	var found bool
	if err := on.QueryRow(ctx, h.DB.Names.Render(lookSQL), h.ClientID, silence).Scan(&found); err != nil {
		return nil, fmt.Errorf("look for dead clients: %w", err)
	}
	if !found {
		return nil, nil
	}
	return func(ctx context.Context) (err error) {
		if h.holdsBack() { // By the beat of the same round trip.
			return nil
		}
		ctx, cancel := context.WithTimeout(ctx, h.operationTimeout())
		defer cancel()
		*taken, err = h.bury(ctx, func(queries *dbsqlc.Queries) ([]string, error) {
			return queries.ClientsRemoveSilent(ctx, dbsqlc.ClientsRemoveSilentParams{Self: h.ClientID, SilenceSeconds: silence})
		})
		return err
	}, nil
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
		jobs    []job
	)
	// A later snapshot per statement: what was locked a moment ago may have changed.
	err := pgx.BeginTxFunc(ctx, h.DB.Async(), pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '"+lockTimeout+"'"); err != nil {
			return fmt.Errorf("set lock timeout: %w", err)
		}
		if _, err := tx.Exec(ctx, h.DB.Names.Render(redateSQL)); err != nil {
			return fmt.Errorf("date what was seen in the future: %w", err)
		}
		queries := h.DB.Names.Queries(tx)
		var err error
		if clients, err = remove(queries); err != nil {
			return fmt.Errorf("remove clients: %w", err)
		}
		if leases, err = queries.ClientLeasesExpire(ctx, clients); err != nil {
			return fmt.Errorf("end leases of removed clients: %w", err)
		}
		jobs, err = h.giveBack(ctx, tx, clients, nil)
		return err
	})
	if err != nil {
		return Reclaimed{}, fmt.Errorf("reclaim from dead clients: %w", err)
	}
	return h.report(ctx, clients, leases, jobs), nil
}

func (h *Heart) giveBack(ctx context.Context, tx pgx.Tx, clients []string, own []int64) ([]job, error) {
	rows, err := tx.Query(ctx, h.DB.Names.Render(giveBackSQL), h.ClientID, h.silence().Seconds(), clients, own)
	if err != nil {
		return nil, fmt.Errorf("give back jobs: %w", err)
	}
	jobs, err := pgx.CollectRows(rows, pgx.RowToStructByPos[job])
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
	// Postgres itself folds equal notifications of a transaction.
	if _, err := tx.Exec(ctx, notifySQL, h.DB.Names.Jobs, queues); err != nil {
		return nil, fmt.Errorf("notify queues: %w", err)
	}
	return jobs, nil
}

// report logs what was taken, once that is durable.
func (h *Heart) report(ctx context.Context, clients []string, leases []dbsqlc.ClientLeasesExpireRow, jobs []job) Reclaimed {
	taken := Reclaimed{Clients: clients}
	for _, id := range clients {
		if id != h.ClientID {
			h.Logger.WarnContext(ctx, "client taken for dead", "client_id", id, "silence_ms", h.silence().Milliseconds())
		}
	}
	for _, l := range leases {
		taken.Leases = append(taken.Leases, l.Key)
		h.Logger.WarnContext(ctx, "lease reclaimed", "key", l.Key, "holder", l.Holder)
	}
	for _, j := range jobs {
		taken.Jobs = append(taken.Jobs, j.ID)
		h.Logger.WarnContext(ctx, "job reclaimed", "job_id", j.ID, "kind", j.Kind, "client_id", j.ClientID, "state", j.State)
	}
	return taken
}
