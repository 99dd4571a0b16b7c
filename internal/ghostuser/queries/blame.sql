-- Counts an attempt, records why, and puts the user off for $3 seconds, or for longer where an operator has done so meanwhile.
UPDATE "public".users_ghost_user_migrations AS job
SET attempts = job.attempts OPERATOR(pg_catalog.+) 1,
    last_error = $2,
    consume_after = greatest(job.consume_after, pg_catalog.clock_timestamp() OPERATOR(pg_catalog.+) pg_catalog.make_interval(secs => $3::pg_catalog.float8)),
    updated_at = pg_catalog.clock_timestamp()
WHERE job.id OPERATOR(pg_catalog.=) $1
