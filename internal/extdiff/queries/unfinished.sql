-- The first $1 of the uploads in parts that have not come to their end, the oldest first.
SELECT ledger.diff_id, coalesce(ledger.upload_bytes, 0)::bigint, ledger.upload_sent, ledger.upload_began_at, ledger.upload_seen_at,
    ledger.upload_failures::bigint, coalesce(ledger.upload_error, '')
FROM "sexton".external_diffs AS ledger
WHERE ledger.upload_id IS NOT NULL
ORDER BY ledger.upload_began_at, ledger.diff_id
LIMIT $1
