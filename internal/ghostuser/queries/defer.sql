-- Moves unfinished users to the end of the due users. It skips users whose row another
-- session has locked, because the lock must not fail the run, and users whom an operator
-- has deferred meanwhile.
UPDATE "public".users_ghost_user_migrations AS job
SET consume_after = pg_catalog.clock_timestamp(), updated_at = pg_catalog.clock_timestamp()
WHERE job.id OPERATOR(pg_catalog.=) ANY (ARRAY(
    SELECT unlocked.id
    FROM "public".users_ghost_user_migrations AS unlocked
    WHERE unlocked.id OPERATOR(pg_catalog.=) ANY ($1::bigint[]) AND unlocked.consume_after OPERATOR(pg_catalog.<=) pg_catalog.clock_timestamp()
    FOR NO KEY UPDATE SKIP LOCKED
))
