coalesce((
    SELECT extract(epoch FROM pg_catalog.min(job.consume_after) OPERATOR(pg_catalog.-) pg_catalog.statement_timestamp())
    FROM "public".users_ghost_user_migrations AS job
    WHERE job.consume_after OPERATOR(pg_catalog.>) pg_catalog.statement_timestamp() AND job.consume_after OPERATOR(pg_catalog.<) 'infinity'
), 0)::pg_catalog.float8
