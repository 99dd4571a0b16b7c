-- A new job's time is that of this transaction's begin; its xmin may be that of a savepoint.
SELECT pg_catalog.count(*) FROM "sexton".river_job AS job WHERE job.id = ANY ($1::bigint[]) AND job.created_at = pg_catalog.now() AND job.attempt = 0
