-- Counts an attempt, records the reason, and defers the user for $3 seconds, unless an
-- operator has deferred it for longer.
UPDATE "public".users_ghost_user_migrations AS job
SET attempts = job.attempts OPERATOR(pg_catalog.+) 1,
    last_error = $2,
    consume_after = greatest(job.consume_after, pg_catalog.clock_timestamp() OPERATOR(pg_catalog.+) pg_catalog.make_interval(secs => $3::pg_catalog.float8)),
    updated_at = pg_catalog.clock_timestamp()
WHERE job.id OPERATOR(pg_catalog.=) $1
