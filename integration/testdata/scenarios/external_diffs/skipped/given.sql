-- Diff 1 is moved. Diff 2 has fewer files than files_count. Diff 3 has a file that is
-- marked as moved. Diff 4 has the highest possible files_count, but no files. Diff 5 has
-- no files_count and no files.
INSERT INTO merge_request_diffs (id, merge_request_id, project_id, files_count) VALUES (1, 7, 1, 1), (2, 7, 1, 3), (3, 7, 1, 1), (4, 7, 1, 32767), (5, 7, 1, NULL);
INSERT INTO merge_request_diff_files (merge_request_diff_id, relative_order, project_id, new_file, renamed_file, deleted_file, too_large, a_mode, b_mode, old_path, new_path, "binary", diff)
SELECT id, 0, 1, false, false, false, false, '0', '0', 'a', NULL, false, 'a' FROM merge_request_diffs WHERE id <= 3;
UPDATE merge_request_diff_files SET external_diff_size = 5, diff = NULL WHERE merge_request_diff_id = 3;
