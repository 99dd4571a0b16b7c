-- Counts the jobs among $1 that this transaction has inserted. Their created_at is the start of the transaction. Their xmin may be the ID of a
-- subtransaction, so it is not compared.
SELECT pg_catalog.count(*) FROM "sexton".river_job AS job WHERE job.id = ANY ($1::bigint[]) AND job.created_at = pg_catalog.now() AND job.attempt = 0
