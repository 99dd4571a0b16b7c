-- Sends unfinished users to the back of the due ones, in the order in which they stand. A user whose row another session has locked keeps its
-- place; the lock must not fail the run. A user whom an operator has put off meanwhile stays so.
UPDATE "public".users_ghost_user_migrations AS job
SET consume_after = pg_catalog.clock_timestamp(), updated_at = pg_catalog.clock_timestamp()
WHERE job.id OPERATOR(pg_catalog.=) ANY (ARRAY(
    SELECT unlocked.id
    FROM "public".users_ghost_user_migrations AS unlocked
    WHERE unlocked.id OPERATOR(pg_catalog.=) ANY ($1::bigint[]) AND unlocked.consume_after OPERATOR(pg_catalog.<=) pg_catalog.clock_timestamp()
    FOR NO KEY UPDATE SKIP LOCKED
))
