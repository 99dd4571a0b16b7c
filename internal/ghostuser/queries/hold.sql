-- Locks the user's row of the queue against a cancellation. Fails with a division by zero where there is none any more.
SELECT 1 OPERATOR(pg_catalog./) pg_catalog.count(*)::integer FROM (
    SELECT FROM "public".users_ghost_user_migrations AS job WHERE job.id OPERATOR(pg_catalog.=) $1 FOR NO KEY UPDATE
) AS queued
