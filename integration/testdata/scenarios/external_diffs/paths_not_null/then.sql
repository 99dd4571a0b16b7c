SELECT relative_order, old_path, new_path, "binary", external_diff_offset, external_diff_size, diff FROM merge_request_diff_files;

-- any:
--   0 | a | a | f | 0 | 1 | NULL
