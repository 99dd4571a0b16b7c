-- Counts the jobs that this transaction has inserted: their created_at is its start. (xmin may be that of a savepoint.)
SELECT pg_catalog.count(*) FROM "sexton".river_job AS job WHERE job.id = ANY ($1::bigint[]) AND job.created_at = pg_catalog.now() AND job.attempt = 0
