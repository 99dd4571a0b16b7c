-- Returns the seconds until the next deferred row is due, or 0 if no row is deferred. The
-- index begins with the number of attempts, so each number is one range scan. An operator
-- may defer a row to infinity, which never becomes due.
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
