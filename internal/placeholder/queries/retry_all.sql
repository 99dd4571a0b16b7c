-- Sets the attempts of at most 10,000 ownerless rows that were tried to 0. Rows with the
-- most attempts come first.
UPDATE {detail}
SET deletion_attempts = 0, last_deletion_attempt_at = NULL, updated_at = pg_catalog.statement_timestamp()
WHERE detail.namespace_id IS NULL AND detail.id OPERATOR(pg_catalog.=) ANY (ARRAY(
    SELECT detail.id
    FROM {detail}
    WHERE detail.namespace_id IS NULL AND detail.deletion_attempts OPERATOR(pg_catalog.>) 0 AND {unqueued} AND NOT {waits} AND {placeholder}
    ORDER BY detail.deletion_attempts DESC, detail.id
    LIMIT 10000
    FOR NO KEY UPDATE OF detail SKIP LOCKED
))
