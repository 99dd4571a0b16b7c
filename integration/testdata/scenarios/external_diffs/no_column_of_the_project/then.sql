SELECT old_path, "binary", project FROM merge_request_diff_files ORDER BY 1;

-- any:
--   a | f | NULL
--   b | t | 2
--   c | t | NULL
