-- Returns the number of files of a diff ($1), the bytes of their texts, whether a file is external although the diff is not, and the fingerprint.
SELECT
    pg_catalog.count(*),
    coalesce(pg_catalog.sum({size}), 0)::bigint,
    coalesce(pg_catalog.bool_or(file.diff IS NULL AND file.external_diff_size OPERATOR(pg_catalog.>) 0), false),
    {fingerprint}
FROM "public".merge_request_diff_files AS file
WHERE file.merge_request_diff_id OPERATOR(pg_catalog.=) $1
