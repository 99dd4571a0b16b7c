-- Inserts a job of the kind $1 for each diff of $2. Returns the IDs of the new and the existing jobs. Waits at most $3 milliseconds for each lock.
WITH bounded AS MATERIALIZED (
    SELECT pg_catalog.set_config('lock_timeout', $3::bigint::pg_catalog.text, true)
), enqueued AS MATERIALIZED (
    SELECT "sexton".enqueue($1, pg_catalog.jsonb_build_object('diff_id', diff.id)) AS id FROM bounded, pg_catalog.unnest($2::bigint[]) AS diff (id)
)
SELECT pg_catalog.array_agg(enqueued.id) FROM enqueued
