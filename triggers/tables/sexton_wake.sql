-- On a deletion table into which work is inserted. The keys are those of the kind's awake lock.
--
-- The condition is the test whether a worker is awake, so that while one is no function is called at all. It
-- is evaluated once the statement's rows are in, as the trigger comes AFTER it.
--
-- Test and release are one expression, evaluated from left to right: between two statements a cancelled
-- query would leave the session with the lock, and with it every writer silent.
CREATE OR REPLACE TRIGGER sexton_wake
AFTER INSERT ON "queue_schema"."queue_table"
REFERENCING NEW TABLE AS sexton_added
FOR EACH STATEMENT
WHEN (
    pg_catalog.pg_try_advisory_lock_shared('awake_key_1'::pg_catalog.int4, 'awake_key_2'::pg_catalog.int4)
    AND pg_catalog.pg_advisory_unlock_shared('awake_key_1'::pg_catalog.int4, 'awake_key_2'::pg_catalog.int4)
)
EXECUTE FUNCTION "sexton"."wake_inserted"('job_kind');
