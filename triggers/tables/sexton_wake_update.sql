-- Beside sexton_wake on such a table: on rows that become work by an UPDATE, also one of a foreign key's SET NULL.
CREATE OR REPLACE TRIGGER sexton_wake_update
AFTER UPDATE ON "queue_schema"."queue_table"
FOR EACH ROW
WHEN (
    ('due_new')
    AND ('due_old') IS NOT TRUE
    AND pg_catalog.pg_try_advisory_lock_shared('awake_key_1'::pg_catalog.int4, 'awake_key_2'::pg_catalog.int4)
    AND pg_catalog.pg_advisory_unlock_shared('awake_key_1'::pg_catalog.int4, 'awake_key_2'::pg_catalog.int4)
)
EXECUTE FUNCTION "sexton"."wake_changed"('job_kind', 'due_text');
