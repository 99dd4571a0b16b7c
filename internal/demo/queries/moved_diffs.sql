SELECT diff.id, diff.merge_request_id, diff.external_diff, file.external_diff_offset, file.external_diff_size, taken.sha256
FROM demo.diffs AS taken
JOIN "public".merge_request_diffs AS diff ON diff.id = taken.diff_id AND diff.stored_externally
LEFT JOIN "public".merge_request_diff_files AS file
    ON file.merge_request_diff_id = diff.id AND coalesce(file.new_path, file.old_path) = taken.path AND file.diff IS NULL
ORDER BY diff.id
