SELECT old_path, "binary", project_id FROM merge_request_diff_files ORDER BY 1;

-- any:
--   a | f | 2
--   b | t | 2
--   c | t | 2
