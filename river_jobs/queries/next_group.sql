-- Takes the next waiting job of the kind $1 for this run: it is put off, so that no other worker takes it, and so that it comes by itself if this run dies
-- or the group is not gone by its end.
UPDATE "sexton".river_job AS taken
SET state = 'scheduled',
    scheduled_at = pg_catalog.clock_timestamp() + interval '1 minute'
WHERE taken.id = (
    SELECT job.id
    FROM "sexton".river_job AS job
    WHERE job.kind = $1
      AND job.queue = $1
      AND job.state = 'available'
      AND job.scheduled_at <= pg_catalog.statement_timestamp()
      AND job.attempt = 0
      AND NOT EXISTS (
          SELECT FROM "sexton".river_queue AS queue WHERE queue.name = $1 AND queue.paused_at IS NOT NULL
      )
    ORDER BY job.priority, job.scheduled_at, job.id
    LIMIT 1
    FOR UPDATE SKIP LOCKED
)
RETURNING taken.id, taken.args, coalesce((taken.metadata ->> 'due_at')::pg_catalog.timestamptz, taken.created_at);
