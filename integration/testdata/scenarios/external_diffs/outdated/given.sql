-- Diff 3 is the latest diff of the merge request, and diff 1 is the diff of the merge.
INSERT INTO merge_request_diffs (id, merge_request_id, project_id, files_count, diff_type) VALUES (1, 7, 1, 1, 2), (2, 7, 1, 1, 1), (3, 7, 1, 1, 1), (4, 7, 1, 1, 1);
INSERT INTO merge_request_diff_files (merge_request_diff_id, relative_order, project_id, new_file, renamed_file, deleted_file, too_large, a_mode, b_mode, old_path, new_path, "binary", diff)
SELECT id, 0, 1, false, false, false, false, '0', '0', 'a', NULL, false, 'a' FROM merge_request_diffs;
UPDATE merge_requests SET latest_merge_request_diff_id = 3;
