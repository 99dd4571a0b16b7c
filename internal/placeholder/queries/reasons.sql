-- Groups the first rows with an error by what keeps them. One with several references counts for each.
SELECT why.reason, pg_catalog.count(*), pg_catalog.count(*) FILTER (WHERE tried.deletion_attempts >= $1),
    pg_catalog.min({next_attempt}) FILTER (WHERE tried.deletion_attempts < $1)
FROM (
    SELECT detail.* FROM {detail}
    WHERE detail.namespace_id IS NULL AND {unqueued}
    ORDER BY detail.deletion_attempts DESC, detail.last_deletion_attempt_at DESC, detail.id DESC
    LIMIT 10000
) AS tried
CROSS JOIN LATERAL pg_catalog.unnest(coalesce(tried.blocked_by, ARRAY['{refused}'])) AS why (reason)
WHERE tried.last_error IS NOT NULL AND pg_catalog.isfinite(tried.last_deletion_attempt_at)
GROUP BY why.reason
ORDER BY 2 DESC, 1
LIMIT $3
