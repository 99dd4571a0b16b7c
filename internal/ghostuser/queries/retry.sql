-- Retries the failed user $1, or all failed users if $1 is empty. Skips users that a
-- worker is processing.
WITH free AS (
    SELECT job.id
    FROM "public".users_ghost_user_migrations AS job
    WHERE job.attempts OPERATOR(pg_catalog.>) 0 AND ($1::pg_catalog.text OPERATOR(pg_catalog.=) '' OR job.user_id::pg_catalog.text OPERATOR(pg_catalog.=) $1)
    ORDER BY job.consume_after DESC, job.id DESC
    LIMIT $2
    FOR UPDATE SKIP LOCKED
)
UPDATE "public".users_ghost_user_migrations AS job
SET consume_after = least(job.consume_after, pg_catalog.statement_timestamp()), attempts = 0, updated_at = pg_catalog.clock_timestamp()
FROM free
WHERE job.id OPERATOR(pg_catalog.=) free.id
