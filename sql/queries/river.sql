-- These statements read and write River's tables.

-- name: ProducerQueues :many
-- Returns the state of queues for River's producers. A queue is outdated if other
-- definitions are installed than the worker's, which are given by @own_queues, @own_keys
-- (of leases) and @own_digests.
SELECT wanted.name::pg_catalog.text AS name,
    EXISTS (SELECT FROM "sexton".river_queue AS queue WHERE queue.name = wanted.name AND queue.paused_at IS NOT NULL) AS paused,
    EXISTS (SELECT FROM "sexton".river_leader AS leader WHERE leader.expires_at > pg_catalog.clock_timestamp()) AS led,
    EXISTS (
        SELECT FROM "sexton".fences AS fence
        WHERE fence.slot = 0 AND EXISTS (
            SELECT FROM pg_catalog.generate_subscripts(@own_queues::pg_catalog.text[], 1) AS own (n)
            WHERE (@own_queues::pg_catalog.text[])[own.n] = wanted.name
              AND (@own_keys::pg_catalog.text[])[own.n] = fence.key
              AND (@own_digests::pg_catalog.text[])[own.n] <> fence.digest
        )
    ) AS outdated,
    EXISTS (
        SELECT FROM "sexton".river_job AS job
        WHERE job.state = 'available' AND job.queue = wanted.name AND job.scheduled_at <= pg_catalog.clock_timestamp()
    ) AS waiting,
    ARRAY(
        SELECT job.id FROM "sexton".river_job AS job
        WHERE job.state = 'running' AND job.queue = wanted.name AND job.metadata ? 'cancel_attempted_at'
    )::pg_catalog.int8[] AS cancelled
FROM pg_catalog.unnest(@queues::pg_catalog.text[]) AS wanted (name);

-- name: QueueStates :many
-- Counts the jobs of queues by state. Each count reads one range of the index by which
-- River fetches jobs. The ORDER BY makes the planner use that index. Otherwise, in a
-- table that was not vacuumed lately, it would read the complete table for a queue or
-- state without jobs. since is NULL for a queue without a row in River's table.
SELECT wanted.name::pg_catalog.text AS queue, (queue.paused_at IS NOT NULL)::pg_catalog.bool AS paused, queue.created_at AS since,
    state.name::pg_catalog.text AS state,
    (SELECT pg_catalog.count(*) FROM (
        SELECT FROM "sexton".river_job AS job
        WHERE job.state = state.name AND job.queue = wanted.name
        ORDER BY job.priority, job.scheduled_at, job.id
        LIMIT @most::int
    ) AS counted)::bigint AS jobs
FROM pg_catalog.unnest(@queues::pg_catalog.text[]) AS wanted (name)
LEFT JOIN "sexton".river_queue AS queue ON queue.name = wanted.name
CROSS JOIN pg_catalog.unnest(ARRAY['available', 'pending', 'running', 'retryable', 'scheduled', 'discarded']::"sexton".river_job_state[]) AS state (name)
ORDER BY 1, 4;

-- name: JobStalled :many
-- Returns the oldest stalled job of a kind for a database. A job is stalled if it has
-- been waiting for a fetch for 30 s, or if it has been running for 30 s and no living
-- client has a run for it. If @several is set, a waiting job is not stalled while the
-- kind has other runs.
SELECT job.id, (job.state = 'running')::pg_catalog.bool AS running,
    coalesce(job.attempted_by[pg_catalog.cardinality(job.attempted_by)], '')::pg_catalog.text AS client, since.at::pg_catalog.timestamptz AS since
FROM "sexton".river_job AS job
CROSS JOIN LATERAL (SELECT CASE WHEN job.state = 'running' THEN job.attempted_at ELSE job.scheduled_at END AS at) AS since
WHERE job.state IN ('available', 'running')
  AND job.queue = @kind
  AND coalesce(job.args ->> 'database'::pg_catalog.text, @database::pg_catalog.text) = @database::pg_catalog.text
  AND since.at < pg_catalog.clock_timestamp() - interval '30 seconds'
  AND (job.state = 'available' OR NOT EXISTS (
      SELECT FROM "sexton".runs AS run
      WHERE run.kind = @kind AND run.database = @database::pg_catalog.text AND run.ended_at IS NULL AND run.started_at >= job.attempted_at
        AND EXISTS (
            SELECT FROM "sexton".clients AS client
            WHERE client.client_id = run.holder
              AND client.seen_at >= pg_catalog.clock_timestamp() - pg_catalog.make_interval(secs => @silence_seconds::pg_catalog.float8)
        )
  ))
  AND (job.state = 'running' OR NOT @several::pg_catalog.bool OR NOT EXISTS (
      SELECT FROM "sexton".runs AS run
      WHERE run.kind = @kind AND run.database = @database::pg_catalog.text
        AND run.started_at > pg_catalog.clock_timestamp() - interval '1 day'
        AND (run.ended_at > pg_catalog.clock_timestamp() - interval '30 seconds'
             OR run.ended_at IS NULL AND EXISTS (
                 SELECT FROM "sexton".clients AS client
                 WHERE client.client_id = run.holder
                   AND client.seen_at >= pg_catalog.clock_timestamp() - pg_catalog.make_interval(secs => @silence_seconds::pg_catalog.float8)
             ))
  ))
ORDER BY since.at
LIMIT 1;

-- name: JobState :one
SELECT job.state::pg_catalog.text AS state, coalesce(job.metadata -> 'output'::pg_catalog.text ->> 'outcome'::pg_catalog.text, '')::pg_catalog.text AS outcome
FROM "sexton".river_job AS job
WHERE job.id = @id;

-- name: JobsRetryIn :one
-- Returns the seconds until failed jobs of a kind may be retried: at most @longest after
-- their last attempt, or after now if the server's clock was set back.
SELECT coalesce(pg_catalog.max(extract(epoch FROM least(
    job.scheduled_at,
    least(job.attempted_at, pg_catalog.clock_timestamp()) + pg_catalog.make_interval(secs => @longest::pg_catalog.float8)
) - pg_catalog.clock_timestamp())), 0)::pg_catalog.float8 AS seconds
FROM "sexton".river_job AS job
WHERE job.state = 'retryable' AND job.queue = @kind AND job.kind = @kind;

-- name: JobsStart :one
-- Returns the time for the first of several jobs of a kind that start at intervals: now
-- or, if jobs of an earlier run wait, after the last of them. A job that was scheduled
-- far in the future does not delay others: the result is limited by the number of waiting
-- jobs times the interval.
SELECT greatest(
    pg_catalog.statement_timestamp(),
    CASE WHEN pg_catalog.count(*) > 0 THEN least(
        pg_catalog.max(job.scheduled_at) + pg_catalog.make_interval(secs => @spacing::pg_catalog.float8),
        pg_catalog.statement_timestamp() + (pg_catalog.count(*) + 1) * pg_catalog.make_interval(secs => @spacing::pg_catalog.float8)
    ) END
)::pg_catalog.timestamptz AS start
FROM "sexton".river_job AS job
WHERE job.state = 'scheduled' AND job.queue = @kind AND job.kind = @kind;

-- name: JobsSchedule :many
-- Makes due jobs available, the most urgent first, and returns their queues. It skips
-- locked jobs. Like River it discards a job that need not be unique while it waits if
-- there is an equal job that must be unique. The discarded job loses its key, because the
-- key may have to be unique among discarded jobs.
WITH due AS (
    SELECT job.id, CASE WHEN job.unique_states IS NOT NULL THEN job.unique_key END AS unique_key, job.priority, job.scheduled_at
    FROM "sexton".river_job AS job
    WHERE job.state IN ('retryable', 'scheduled')
      AND job.scheduled_at <= pg_catalog.clock_timestamp()
    ORDER BY job.priority, job.scheduled_at, job.id
    LIMIT @most::int
    FOR UPDATE SKIP LOCKED
), compared AS (
    SELECT
        due.id,
        due.unique_key IS NOT NULL AND (
            pg_catalog.row_number() OVER (PARTITION BY due.unique_key ORDER BY due.priority, due.scheduled_at, due.id) > 1
            OR EXISTS (
                SELECT FROM "sexton".river_job AS other
                WHERE other.unique_key = due.unique_key
                  AND other.unique_states IS NOT NULL
                  AND "sexton".river_job_state_in_bitmask(other.unique_states, other.state)
                  AND other.id <> due.id
            )
        ) AS discarded
    FROM due
)
UPDATE "sexton".river_job AS job
SET state = CASE WHEN compared.discarded THEN 'discarded' ELSE 'available' END::"sexton".river_job_state,
    finalized_at = CASE WHEN compared.discarded THEN pg_catalog.clock_timestamp() END,
    metadata = CASE WHEN compared.discarded THEN job.metadata || '{"unique_key_conflict": "scheduler_discarded"}' ELSE job.metadata END,
    unique_key = CASE WHEN NOT compared.discarded THEN job.unique_key END
FROM compared
WHERE job.id = compared.id
RETURNING job.queue, compared.discarded::boolean AS discarded;

-- name: ClientJobs :many
-- Returns the jobs that River fetched for a client. River appends the fetching client to
-- attempted_by.
SELECT job.id
FROM "sexton".river_job AS job
WHERE job.state = 'running' AND job.attempted_by[pg_catalog.cardinality(job.attempted_by)] = @self::pg_catalog.text;

-- name: ClientsDead :one
-- Reports whether a client was silent for too long or has a heartbeat in the future, or
-- whether a running job belongs to a client without a row. Such a client is dead, or so
-- new that its first heartbeat has not been written yet. The query is cheap if all
-- clients are alive.
SELECT (EXISTS (
    SELECT FROM "sexton".clients AS client
    WHERE client.client_id <> @self::pg_catalog.text
      AND (client.seen_at < pg_catalog.clock_timestamp() - pg_catalog.make_interval(secs => @silence_seconds::pg_catalog.float8)
           OR client.seen_at > pg_catalog.clock_timestamp())
) OR EXISTS (
    SELECT FROM "sexton".river_job AS job
    WHERE job.state = 'running'
      AND job.attempted_at < pg_catalog.clock_timestamp() - pg_catalog.make_interval(secs => @silence_seconds::pg_catalog.float8)
      AND job.attempted_by[pg_catalog.cardinality(job.attempted_by)] IS DISTINCT FROM @self::pg_catalog.text
      AND NOT EXISTS (
          SELECT FROM "sexton".clients AS client WHERE client.client_id = job.attempted_by[pg_catalog.cardinality(job.attempted_by)]
      )
))::pg_catalog.bool AS found;

-- name: JobsGiveBack :many
-- Gives back running jobs that no client works on: jobs of the removed @clients, jobs of
-- clients without a row, and the jobs @own. The jobs @own have no goroutine in this
-- client, which fetched them more than 10 s ago. As in River after a shutdown, the
-- attempt does not count, and a job with a requested cancellation is cancelled. Locked
-- rows are skipped, because another client is ending those jobs. A job that was given
-- back 20 times may be killing its workers. From then on its next attempt is delayed by a
-- minute more each time, up to an hour, so that other jobs can run.
WITH orphan AS (
    SELECT job.id, job.metadata ? 'cancel_attempted_at' AS cancelled, 1 + CASE
        WHEN pg_catalog.jsonb_typeof(job.metadata -> 'sexton:reclaim_count'::pg_catalog.text) = 'number'
        THEN greatest(least((job.metadata ->> 'sexton:reclaim_count'::pg_catalog.text)::pg_catalog.numeric, 1000000), 0)::integer
        ELSE 0
    END AS times
    FROM "sexton".river_job AS job
    CROSS JOIN LATERAL (SELECT job.attempted_by[pg_catalog.cardinality(job.attempted_by)] AS client) AS last
    WHERE job.state = 'running'
      AND (last.client = ANY (@clients::pg_catalog.text[])
           OR job.attempted_at < pg_catalog.clock_timestamp() - pg_catalog.make_interval(secs => @silence_seconds::pg_catalog.float8)
              AND last.client IS DISTINCT FROM @self::pg_catalog.text
              AND NOT EXISTS (SELECT FROM "sexton".clients AS client WHERE client.client_id = last.client)
           OR job.id = ANY (@own::bigint[]) AND last.client = @self::pg_catalog.text
              AND job.attempted_at < pg_catalog.clock_timestamp() - interval '10 seconds')
    ORDER BY job.id
    FOR UPDATE OF job SKIP LOCKED
)
UPDATE "sexton".river_job AS job
SET state = (CASE WHEN orphan.cancelled THEN 'cancelled' WHEN orphan.times > 20 THEN 'scheduled' ELSE 'available' END)::"sexton".river_job_state,
    finalized_at = CASE WHEN orphan.cancelled THEN pg_catalog.now() END,
    scheduled_at = CASE
        WHEN orphan.cancelled THEN job.scheduled_at
        ELSE pg_catalog.now() + pg_catalog.make_interval(mins => greatest(least(orphan.times - 20, 60), 0))
    END,
    attempt = CASE WHEN orphan.cancelled THEN job.attempt ELSE greatest(job.attempt - 1, 0) END,
    metadata = job.metadata || pg_catalog.jsonb_build_object('sexton:reclaim_count', orphan.times)
FROM orphan
WHERE job.id = orphan.id
RETURNING job.id, job.kind, job.queue, job.state::pg_catalog.text AS state,
    coalesce(job.attempted_by[pg_catalog.cardinality(job.attempted_by)], '')::pg_catalog.text AS client_id;

-- name: QueuesNotify :exec
-- Wakes River's producers. Postgres drops duplicate notifications of a transaction.
SELECT pg_catalog.pg_notify(
    pg_catalog.concat(@schema_name::pg_catalog.text, '.river_insert'), pg_catalog.json_build_object('queue', queue.name)::pg_catalog.text
)
FROM pg_catalog.unnest(@queues::pg_catalog.text[]) AS queue (name);

-- name: QueueInsert :exec
-- Inserts the row of a queue if it is missing. River inserts it when a worker first
-- serves the queue, but the queue may be paused before that.
INSERT INTO "sexton".river_queue (name, metadata, created_at, updated_at)
VALUES (@name, '{}', pg_catalog.now(), pg_catalog.now())
ON CONFLICT (name) DO NOTHING;

-- name: QueuesPaused :many
SELECT name, metadata, paused_at
FROM "sexton".river_queue
WHERE name = ANY (@names::pg_catalog.text[])
  AND paused_at IS NOT NULL;
