coalesce((
    SELECT extract(epoch FROM CASE
        WHEN job.created_at OPERATOR(pg_catalog.>) pg_catalog.statement_timestamp() THEN pg_catalog.to_timestamp(0)
        ELSE job.consume_after
    END OPERATOR(pg_catalog.-) pg_catalog.statement_timestamp())
    FROM "public".users_ghost_user_migrations AS job
    WHERE job.consume_after OPERATOR(pg_catalog.>) pg_catalog.statement_timestamp() AND job.consume_after OPERATOR(pg_catalog.<) 'infinity'
    ORDER BY job.consume_after
    LIMIT 1
), 0)::pg_catalog.float8
