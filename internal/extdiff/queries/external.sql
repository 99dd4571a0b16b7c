-- Returns the location of the object of a diff ($1), the recorded size and checksum, and the fingerprint of the files.
SELECT diff.merge_request_id, coalesce(diff.stored_externally, false), diff.external_diff, coalesce(diff.external_diff_store, 1),
    ledger.size, ledger.sha256,
    (SELECT {fingerprint} FROM "public".merge_request_diff_files AS file WHERE file.merge_request_diff_id OPERATOR(pg_catalog.=) $1)
FROM "public".merge_request_diffs AS diff
LEFT JOIN "sexton".external_diffs AS ledger ON ledger.diff_id OPERATOR(pg_catalog.=) diff.id
WHERE diff.id OPERATOR(pg_catalog.=) $1
