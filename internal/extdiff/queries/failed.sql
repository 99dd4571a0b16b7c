WITH skipped AS (
    SELECT ledger.diff_id, ledger.skip_reason AS skip, '' AS error, 0 AS attempts, NULL::pg_catalog.timestamptz AS next
    FROM "sexton".external_diffs AS ledger
    WHERE ledger.skip_reason IS NOT NULL AND ($4::bigint IS NULL OR ledger.diff_id OPERATOR(pg_catalog.=) $4)
    LIMIT $2
), jobs AS (
    SELECT (job.args OPERATOR(pg_catalog.->>) 'diff_id')::bigint AS diff_id, job.id, job.attempt, job.state, job.scheduled_at,
        job.errors[pg_catalog.array_upper(job.errors, 1)] OPERATOR(pg_catalog.->>) 'error' AS error
    FROM "sexton".river_job AS job
    WHERE job.kind OPERATOR(pg_catalog.=) $3 AND job.queue OPERATOR(pg_catalog.=) $3 AND job.state OPERATOR(pg_catalog.=) ANY ('{retryable,discarded}')
      AND ($4 IS NULL OR job.args OPERATOR(pg_catalog.@>) pg_catalog.jsonb_build_object('diff_id', $4))
    ORDER BY job.id DESC
    LIMIT $2
), failed AS (
    SELECT DISTINCT ON (jobs.diff_id) jobs.diff_id, '' AS skip, coalesce(jobs.error, '') AS error, jobs.attempt::integer AS attempts,
        CASE WHEN jobs.state OPERATOR(pg_catalog.=) 'retryable' THEN jobs.scheduled_at END AS next
    FROM jobs
    -- A later attempt may have moved it.
    JOIN "public".merge_request_diffs AS diff ON diff.id OPERATOR(pg_catalog.=) jobs.diff_id AND {in_database}
    WHERE NOT {kept}
      AND NOT EXISTS (
          SELECT FROM "sexton".external_diffs AS ledger WHERE ledger.diff_id OPERATOR(pg_catalog.=) jobs.diff_id AND ledger.skip_reason IS NOT NULL
      )
    ORDER BY jobs.diff_id, jobs.id DESC
)
-- With $4 a diff that has not failed comes as well.
SELECT one.diff_id, one.skip, one.error, one.attempts::bigint, one.next,
    coalesce((SELECT diff.stored_externally FROM "public".merge_request_diffs AS diff WHERE diff.id OPERATOR(pg_catalog.=) one.diff_id), false)
FROM (
    SELECT 0 AS place, failed.* FROM failed
    UNION ALL SELECT 0, skipped.* FROM skipped
    UNION ALL SELECT 1, diff.id, '', '', 0, NULL FROM "public".merge_request_diffs AS diff WHERE diff.id OPERATOR(pg_catalog.=) $4
) AS one
ORDER BY one.place, one.skip OPERATOR(pg_catalog.<>) '', one.diff_id
LIMIT $1
