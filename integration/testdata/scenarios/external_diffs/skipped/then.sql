SELECT diff.id, diff.stored_externally, moved.size, moved.skip_reason
FROM merge_request_diffs AS diff LEFT JOIN sexton.external_diffs AS moved ON diff_id = diff.id ORDER BY 1;

-- any:
--   1 | t | 1 | NULL
--   2 | NULL | NULL | files_missing
--   3 | NULL | NULL | inconsistent
--   4 | NULL | NULL | files_missing
--   5 | NULL | NULL | NULL
