-- Is there a period at all, and when may the first of a pass's destructions begin: $1 seconds after the last in line, one of an earlier pass
-- or one that was asked for without waiting. Destructions that are tried again do not count, as their time is theirs. The line ends at the
-- first gap of an hour, or of three places where these are wider: a user may have asked for a destruction next year, for which the others
-- need not wait. Without spacing there is no line.

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
