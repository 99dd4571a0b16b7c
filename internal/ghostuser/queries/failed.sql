(
    SELECT waiting.*
    FROM "public".users_ghost_user_migrations AS waiting
    ORDER BY waiting.consume_after DESC, waiting.id DESC
    LIMIT $2
) AS job
WHERE job.attempts OPERATOR(pg_catalog.>) 0
