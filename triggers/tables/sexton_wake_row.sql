-- On a table whose rows are work for a kind as long as a condition holds: on rows that come in so. The second argument
-- is the condition, by which the installed trigger is known.
--
-- The test whether a worker is awake comes last, for the few rows that are work. It is evaluated once the row is in, while
-- the transaction holds its lock on the table, for which a worker that goes to sleep waits.
CREATE OR REPLACE TRIGGER sexton_wake
AFTER INSERT ON "queue_schema"."queue_table"
FOR EACH ROW
WHEN (
    ('due_new')
    AND pg_catalog.pg_try_advisory_lock_shared('awake_key_1'::pg_catalog.int4, 'awake_key_2'::pg_catalog.int4)
    AND pg_catalog.pg_advisory_unlock_shared('awake_key_1'::pg_catalog.int4, 'awake_key_2'::pg_catalog.int4)
)
EXECUTE FUNCTION "sexton"."wake_changed"('job_kind', 'due_text');
