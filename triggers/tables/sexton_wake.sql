-- This trigger is for a deletion table, or for a table whose rows are work for a kind
-- while they meet a condition. On a table with a condition, it fires for inserted rows
-- that meet the condition. A second trigger fires for rows that begin to meet it by an
-- UPDATE, including SET NULL of a foreign key. The second argument is the condition, so
-- that the installed trigger can be compared.
--
-- The keys are the keys of the kind's awake lock. The lock is tested last, only for rows
-- that are work, so that no function is called while a worker is awake. The lock is
-- tested after the rows are written, because the trigger is an AFTER trigger. It is
-- tested while the transaction has its lock on the table, and a worker that stops being
-- awake waits for that lock.
--
-- Test and release are one expression, evaluated from left to right. If they were two
-- statements, a canceled query could leave the lock with the session, and then no writer
-- would notify.
CREATE OR REPLACE TRIGGER "trigger_name"
AFTER "event" ON "parent_schema"."parent_table"
"for_each"
WHEN (
    "due"pg_catalog.pg_try_advisory_lock_shared('awake_key_1'::pg_catalog.int4, 'awake_key_2'::pg_catalog.int4)
    AND pg_catalog.pg_advisory_unlock_shared('awake_key_1'::pg_catalog.int4, 'awake_key_2'::pg_catalog.int4)
)
EXECUTE FUNCTION "sexton"."track_function"('arguments');
