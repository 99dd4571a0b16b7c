-- On a deletion table into which work is inserted, or on a table whose rows are work for a kind as long as a condition holds: there on rows that come
-- in so and, by a trigger of its own, on rows that become so by an UPDATE, also one of a foreign key's SET NULL. The second argument is the condition,
-- by which the installed trigger is known.
--
-- The keys are those of the kind's awake lock. Whether a worker is awake is tested last, for the few rows that are work, so that while one is no
-- function is called at all. It is tested once the rows are in, as the trigger comes AFTER them, and while the transaction holds its lock on the
-- table, for which a worker that goes to sleep waits.
--
-- Test and release are one expression, evaluated from left to right: between two statements a cancelled
-- query would leave the session with the lock, and with it every writer silent.
CREATE OR REPLACE TRIGGER "trigger_name"
AFTER "event" ON "parent_schema"."parent_table"
"for_each"
WHEN (
    "due"pg_catalog.pg_try_advisory_lock_shared('awake_key_1'::pg_catalog.int4, 'awake_key_2'::pg_catalog.int4)
    AND pg_catalog.pg_advisory_unlock_shared('awake_key_1'::pg_catalog.int4, 'awake_key_2'::pg_catalog.int4)
)
EXECUTE FUNCTION "sexton"."track_function"('arguments');
