-- Returns the cutoff, and the time when the pass's first destruction may begin: $1
-- seconds after the last waiting destruction of an earlier pass or of delete_group_now.
-- Retried destructions do not count, because each has its own time. A gap of an hour, or
-- of three times the spacing if that is longer, ends the line of destructions. A
-- destruction may be scheduled for next year, and must not delay new ones.

WITH line AS (
    SELECT
        job.scheduled_at,
        job.scheduled_at -
            greatest(pg_catalog.statement_timestamp(), pg_catalog.lag(job.scheduled_at) OVER (ORDER BY job.scheduled_at)) AS gap
    FROM "sexton".river_job AS job
    WHERE job.queue = 'group_destroy' AND job.kind = 'group_destroy'
      AND job.state = ANY ('{available,running,scheduled,completed}')
      AND $1::pg_catalog.float8 > 0
)
SELECT
    "sexton".group_deletion_cutoff(),
    greatest(pg_catalog.statement_timestamp(), (
        SELECT pg_catalog.max(line.scheduled_at) + pg_catalog.make_interval(secs => $1::pg_catalog.float8)
        FROM line
        WHERE line.scheduled_at < coalesce((
            SELECT pg_catalog.min(line.scheduled_at)
            FROM line
            WHERE line.gap >
                greatest(interval '1 hour', pg_catalog.make_interval(secs => 3::pg_catalog.float8 * $1::pg_catalog.float8))
        ), 'infinity')
    ))
