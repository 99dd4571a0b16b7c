-- Counts the attempts of the rows with the ids $3 that are as they were read, with the attempts $4. The reasons $5 and the columns $6, as JSON,
-- are NULL where no statement has looked.
WITH chosen AS MATERIALIZED (
    SELECT detail.id, kept.reason, kept.columns
    FROM {detail}
    JOIN unnest($3::bigint[], $4::bigint[], $5::pg_catalog.text[], $6::pg_catalog.text[]) AS kept (id, attempts, reason, columns)
        ON detail.id OPERATOR(pg_catalog.=) kept.id AND detail.deletion_attempts OPERATOR(pg_catalog.=) kept.attempts
    WHERE ({untried} OR {tried}) AND {unqueued} AND NOT {waits}
    ORDER BY detail.id
    FOR NO KEY UPDATE OF detail
)
UPDATE {detail}
SET deletion_attempts = detail.deletion_attempts OPERATOR(pg_catalog.+) 1,
    last_deletion_attempt_at = pg_catalog.statement_timestamp(),
    last_error = coalesce(chosen.reason, detail.last_error),
    blocked_by = CASE WHEN chosen.reason IS NULL THEN detail.blocked_by
        ELSE ARRAY(SELECT pg_catalog.jsonb_array_elements_text(chosen.columns::pg_catalog.jsonb)) END,
    updated_at = pg_catalog.statement_timestamp()
FROM chosen
WHERE detail.id OPERATOR(pg_catalog.=) chosen.id
RETURNING detail.id, detail.deletion_attempts
