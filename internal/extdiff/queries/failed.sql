-- Returns up to $1 due diffs that were not moved: diffs with a failed job of the kind $3, and then skipped diffs. It reads at most $2 jobs and $2 skipped diffs.
WITH skipped AS (
    SELECT ledger.diff_id, ledger.skip_reason AS skip, '' AS error, 0 AS attempts, NULL::pg_catalog.timestamptz AS next
    FROM "sexton".external_diffs AS ledger
    WHERE ledger.skip_reason IS NOT NULL
    LIMIT $2
), jobs AS (
    SELECT (job.args OPERATOR(pg_catalog.->>) 'diff_id')::bigint AS diff_id, job.id, job.attempt, job.state, job.scheduled_at,
        job.errors[pg_catalog.array_upper(job.errors, 1)] OPERATOR(pg_catalog.->>) 'error' AS error
    FROM "sexton".river_job AS job
    WHERE job.kind = $3 AND job.queue = $3 AND job.state OPERATOR(pg_catalog.=) ANY ('{retryable,discarded}')
    ORDER BY job.id DESC
    LIMIT $2
), failed AS (
    SELECT DISTINCT ON (jobs.diff_id) jobs.diff_id, '' AS skip, coalesce(jobs.error, '') AS error, jobs.attempt::integer AS attempts,
        CASE WHEN jobs.state OPERATOR(pg_catalog.=) 'retryable' THEN jobs.scheduled_at END AS next
    FROM jobs
    -- A diff that a later attempt has moved is left out.
    JOIN "public".merge_request_diffs AS diff ON diff.id = jobs.diff_id AND {in_database}
    WHERE NOT {kept}
      AND NOT EXISTS (
          SELECT FROM "sexton".external_diffs AS ledger WHERE ledger.diff_id = jobs.diff_id AND ledger.skip_reason IS NOT NULL
      )
    ORDER BY jobs.diff_id, jobs.id DESC
)
SELECT one.diff_id, one.skip, one.error, one.attempts::bigint, one.next
FROM (SELECT * FROM failed UNION ALL SELECT * FROM skipped) AS one
ORDER BY one.skip <> '', one.diff_id
LIMIT $1
