-- Returns the files of a diff ($1) without their texts. In an SQL_ASCII database, a text that is not valid UTF-8 counts as binary, because it is moved
-- as base64.
SELECT file.relative_order, file.old_path, coalesce(file.new_path, file.old_path),
    coalesce(CASE WHEN diff.stored_externally THEN file.external_diff_size END, {size})::bigint,
    coalesce(file."binary", false)
        OR "sexton".external_diff_encoded(CASE WHEN pg_catalog.getdatabaseencoding() = 'SQL_ASCII' THEN file.diff END),
    coalesce(diff.stored_externally, false),
    coalesce(file.external_diff_offset, 0)::bigint,
    coalesce(diff.stored_externally, false) AND (file.external_diff_offset IS NULL OR file.external_diff_size IS NULL),
    CASE WHEN diff.external_diff <> '' THEN pg_catalog.format('merge_request_diffs/mr-%s/%s', diff.merge_request_id, diff.external_diff) ELSE '' END,
    coalesce(diff.external_diff_store, 1)
FROM "public".merge_request_diffs AS diff
JOIN "public".merge_request_diff_files AS file ON file.merge_request_diff_id = diff.id
WHERE diff.id = $1
ORDER BY file.relative_order
