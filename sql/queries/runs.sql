-- name: RunStart :one
-- Inserts a run without a lease. LeaseBegin inserts runs with a lease.
INSERT INTO "sexton".runs (kind, database, holder, started_at)
VALUES (@kind, @database, @holder, pg_catalog.clock_timestamp())
RETURNING id;

-- name: RunsAbandon :exec
-- Ends the open runs of earlier holders of a kind's lease. The new holder calls it, so
-- the worker that left these runs open is dead.
UPDATE "sexton".runs
SET ended_at = pg_catalog.clock_timestamp(),
    outcome = 'failed',
    error = 'the worker died or lost its connection before this run could end'
WHERE kind = @kind
  AND database = @database
  AND ended_at IS NULL
  AND id < @before_id;

-- name: RunsAbandonOld :exec
-- Ends open runs of workers that must be dead. If @long is set, runs of the kind may take
-- hours, so a living worker has a day for a run. @live has the caller's own runs that are
-- in progress. If another run of the caller is open, its end was not recorded.
UPDATE "sexton".runs
SET ended_at = pg_catalog.clock_timestamp(),
    outcome = 'failed',
    error = 'the worker died or lost its connection before this run could end'
WHERE kind = @kind
  AND database = @database
  AND ended_at IS NULL
  AND started_at < pg_catalog.clock_timestamp() - CASE
      WHEN @long::boolean
          AND (holder <> @holder OR id = ANY (@live::bigint[]))
          AND EXISTS (SELECT FROM "sexton".clients AS client WHERE client.client_id = runs.holder) THEN interval '1 day'
      ELSE interval '5 minutes'
  END;

-- name: RunProgress :exec
UPDATE "sexton".runs
SET stats = @stats
WHERE id = @id
  AND ended_at IS NULL;

-- name: RunFinish :exec
-- Records the end of a run, and releases the run's lease if it is still held. If the run
-- changed something or failed, the commit waits until its WAL is on disk. The WAL of all
-- earlier commits of the run, including batches, is then also on disk. Runs that changed
-- nothing and had no error share one row per minute.
WITH durable AS MATERIALIZED (
    SELECT pg_catalog.set_config('synchronous_commit', "sexton".commit_mode(@changed::boolean OR @outcome::pg_catalog.text = 'failed'), true)
        AS synchronous_commit
), released AS (
    -- The lease ends at -infinity instead of now(), because the time now() comes again if
    -- the server's clock is set back.
    UPDATE "sexton".leases AS lease SET expires_at = '-infinity'
    WHERE lease.key = @key AND lease.holder = @holder AND lease.acquired_at = @acquired_at
), folded AS (
    UPDATE "sexton".runs AS earlier
    SET folded = earlier.folded + 1,
        ended_at = pg_catalog.clock_timestamp()
    WHERE NOT @changed::boolean
      AND sqlc.narg('error')::pg_catalog.text IS NULL
      AND earlier.id = (
        SELECT candidate.id
        FROM "sexton".runs AS candidate
        JOIN "sexton".runs AS own ON own.id = @id AND candidate.kind = own.kind AND candidate.database = own.database
        WHERE candidate.id < @id
          AND candidate.outcome = @outcome::pg_catalog.text
          AND NOT candidate.changed
          AND candidate.error IS NULL
          AND candidate.started_at >= pg_catalog.date_trunc('minute', own.started_at)
        ORDER BY candidate.id DESC
        LIMIT 1
    )
    RETURNING earlier.id
), gone AS (
    DELETE FROM "sexton".runs WHERE runs.id = @id AND EXISTS (SELECT FROM folded)
)
UPDATE "sexton".runs
SET ended_at = pg_catalog.clock_timestamp(),
    outcome = @outcome::pg_catalog.text,
    changed = @changed::boolean,
    stats = @stats,
    error = sqlc.narg('error'),
    held = sqlc.narg('held')
FROM durable
WHERE runs.id = @id
  AND durable.synchronous_commit IS NOT NULL
  AND NOT EXISTS (SELECT FROM folded);

-- name: RunsPrune :execrows
-- Deletes expired runs among the thousand rows with the lowest ids, which are the oldest.
DELETE FROM "sexton".runs
WHERE id IN (
    SELECT first.id
    FROM (SELECT run.id, run.started_at FROM "sexton".runs AS run ORDER BY run.id LIMIT 1000) AS first
    WHERE first.started_at < pg_catalog.clock_timestamp() - interval '7 days'
);

-- name: RunsLast :many
-- Returns the last run of each kind in each database by one index probe, because the
-- history of a week can be long. The row comparisons with >= and <= allow only the index
-- that begins with kind and database. With equalities the planner could choose another
-- order, and read all runs for a database without a run.
SELECT run.id, run.kind, run.database, run.holder, run.started_at, run.ended_at, run.outcome, run.stats, run.error
FROM pg_catalog.unnest(@kinds::pg_catalog.text[]) AS kind (name)
CROSS JOIN pg_catalog.unnest(@databases::pg_catalog.text[]) AS database (name)
CROSS JOIN LATERAL (
    SELECT last.*
    FROM "sexton".runs AS last
    WHERE (last.kind, last.database) >= (kind.name, database.name)
      AND (last.kind, last.database) <= (kind.name, database.name)
    ORDER BY last.kind, last.database, last.started_at DESC, last.id DESC
    LIMIT 1
) AS run
ORDER BY run.kind, run.database;

-- name: RunsLastSuccess :many
-- Returns the end of the last successful run of each kind in each database, in Unix time,
-- if that run is among the last @cap runs. A held run, which could do none of its pending
-- work, is not successful. The inner query returns the runs in order and stops at the
-- first success.
SELECT kind.name::pg_catalog.text AS kind, database.name::pg_catalog.text AS database, extract(epoch FROM success.ended_at)::pg_catalog.float8 AS ended_epoch
FROM pg_catalog.unnest(@kinds::pg_catalog.text[]) AS kind (name)
CROSS JOIN pg_catalog.unnest(@databases::pg_catalog.text[]) AS database (name)
CROSS JOIN LATERAL (
    SELECT recent.ended_at
    FROM (
        SELECT run.ended_at, run.outcome, run.held
        FROM "sexton".runs AS run
        WHERE (run.kind, run.database) >= (kind.name, database.name)
          AND (run.kind, run.database) <= (kind.name, database.name)
        ORDER BY run.kind, run.database, run.started_at DESC, run.id DESC
        LIMIT @cap::int
    ) AS recent
    WHERE recent.outcome IN ('done', 'over_limit')
      AND recent.held IS NULL
    LIMIT 1
) AS success;

-- name: RunsLatency :many
-- Returns the latency histogram of the last runs of the last hour. Runs without such
-- statistics are ignored.
SELECT kind.name::pg_catalog.text AS kind, database.name::pg_catalog.text AS database, done.bin::pg_catalog.text AS bin,
       pg_catalog.sum(done.items::bigint)::bigint AS items
FROM pg_catalog.unnest(@kinds::pg_catalog.text[]) AS kind (name)
CROSS JOIN pg_catalog.unnest(@databases::pg_catalog.text[]) AS database (name)
CROSS JOIN LATERAL (
    SELECT last.stats
    FROM "sexton".runs AS last
    WHERE (last.kind, last.database) >= (kind.name, database.name)
      AND (last.kind, last.database) <= (kind.name, database.name)
      AND last.started_at > pg_catalog.statement_timestamp() - interval '1 hour'
    ORDER BY last.kind, last.database, last.started_at DESC, last.id DESC
    LIMIT 500
) AS run
CROSS JOIN LATERAL pg_catalog.jsonb_each_text(run.stats::pg_catalog.jsonb -> 'latency_seconds'::pg_catalog.text) AS done (bin, items)
GROUP BY kind.name, database.name, done.bin;

-- name: EventsPrune :execrows
-- Deletes expired events among the thousand rows with the lowest ids, which are the
-- oldest. A search by time would read the complete table.
DELETE FROM "sexton".events
WHERE id IN (
    SELECT first.id
    FROM (SELECT event.id, event.created_at FROM "sexton".events AS event ORDER BY event.id LIMIT 1000) AS first
    WHERE first.created_at < pg_catalog.clock_timestamp() - interval '7 days'
);

-- name: RunsRecent :many
-- Returns the runs that changed something or had an error, among a number of last runs.
SELECT recent.id, recent.kind, recent.database, recent.holder, recent.started_at, recent.ended_at, recent.outcome, recent.stats, recent.error, recent.held
FROM (
    SELECT run.*
    FROM "sexton".runs AS run
    ORDER BY run.id DESC
    LIMIT @window_rows::int
) AS recent
WHERE recent.ended_at IS NOT NULL
  AND (recent.changed OR recent.error IS NOT NULL)
ORDER BY recent.started_at DESC, recent.id DESC
LIMIT @most::int;
