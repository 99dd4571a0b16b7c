-- Locks the user's row of the queue against a cancellation. Fails with SX003 if the row
-- does not exist.
SELECT "sexton".require(pg_catalog.count(*) OPERATOR(pg_catalog.>) 0) FROM (
    SELECT FROM "public".users_ghost_user_migrations AS job WHERE job.id OPERATOR(pg_catalog.=) $1 FOR NO KEY UPDATE
) AS queued
