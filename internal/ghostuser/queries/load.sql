-- Returns due users with one of the kinds of deletion $3, the longest due first, without
-- the users $1.
SELECT job.id, pg_catalog.to_jsonb(job.user_id), job.hard_delete,
    coalesce(extract(epoch FROM pg_catalog.clock_timestamp() - job.created_at), 0)::pg_catalog.float8 AS age
FROM "public".users_ghost_user_migrations AS job
WHERE job.consume_after <= pg_catalog.statement_timestamp()
  AND job.id <> ALL ($1::bigint[])
  AND job.hard_delete = ANY ($3::boolean[])
ORDER BY job.consume_after, job.id
LIMIT $2
