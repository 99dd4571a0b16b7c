-- Returns the name of the object of each moved diff, and its minimum size.
SELECT diff.merge_request_id, diff.external_diff, coalesce(max(file.external_diff_offset + file.external_diff_size), 0)
FROM "public".merge_request_diffs AS diff
LEFT JOIN "public".merge_request_diff_files AS file ON file.merge_request_diff_id = diff.id
WHERE diff.stored_externally GROUP BY diff.id
