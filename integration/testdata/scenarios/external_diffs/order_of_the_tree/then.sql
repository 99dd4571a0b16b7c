SELECT relative_order, old_path, new_path, "binary", external_diff_offset, external_diff_size, diff, external_diff, files_count, sorted
FROM merge_request_diff_files JOIN merge_request_diffs ON id = merge_request_diff_id ORDER BY 1;

-- any:
--   0 | a/b/c.txt | NULL | f | 0 | 0 | NULL | diff-1 | 6 | t
--   1 | a/B.txt | NULL | t | 0 | 4 | NULL | diff-1 | 6 | t
--   2 | a/z.txt | NULL | f | 4 | 7 | NULL | diff-1 | 6 | t
--   3 | a-b/x | NULL | f | 11 | 0 | NULL | diff-1 | 6 | t
--   4 | was | a.txt | f | 11 | 2 | NULL | diff-1 | 6 | t
--   5 | b.txt | NULL | f | 13 | 2 | NULL | diff-1 | 6 | t
