-- The user's rows of a table go children first.
UPDATE "public".users_ghost_user_migrations AS job
SET children_first = pg_catalog.array_append(job.children_first, $2::pg_catalog.text), updated_at = pg_catalog.clock_timestamp()
WHERE job.id OPERATOR(pg_catalog.=) $1 AND NOT $2::pg_catalog.text OPERATOR(pg_catalog.=) ANY (job.children_first)
