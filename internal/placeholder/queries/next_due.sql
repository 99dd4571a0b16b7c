-- In how many seconds the next row can be offered again, 0 where none is put off. Each number of attempts is a stretch of the index of its
-- own. Infinity is how an operator may put a row off for ever: there is no next time.
coalesce((
    SELECT extract(epoch FROM pg_catalog.min(next.last_deletion_attempt_at) - pg_catalog.statement_timestamp())
        OPERATOR(pg_catalog.+) $2::pg_catalog.float8
    FROM pg_catalog.generate_series(0, $1 - 1) AS tried (times)
    CROSS JOIN LATERAL (
        SELECT detail.last_deletion_attempt_at
        FROM {detail}
        WHERE detail.namespace_id IS NULL AND detail.deletion_attempts = tried.times
          AND detail.last_deletion_attempt_at >= {since}
          AND detail.last_deletion_attempt_at < 'infinity'
        ORDER BY detail.last_deletion_attempt_at
        LIMIT 1
    ) AS next
), 0)::pg_catalog.float8
