-- Returns the files of a diff ($1) in the order of their texts in the object. Empty files come before the file at the same offset.
SELECT file.relative_order, file.external_diff_offset::bigint, file.external_diff_size::bigint, coalesce(file."binary", false)
FROM "public".merge_request_diff_files AS file
WHERE file.merge_request_diff_id OPERATOR(pg_catalog.=) $1
ORDER BY file.external_diff_offset, file.external_diff_size, file.relative_order
