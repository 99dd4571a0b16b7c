-- In an older version of the application, new_path is NOT NULL. The column is not
-- changed.
ALTER TABLE merge_request_diff_files ALTER new_path SET NOT NULL;
INSERT INTO merge_request_diffs (id, merge_request_id, project_id, files_count) VALUES (1, 7, 1, 1);
INSERT INTO merge_request_diff_files (merge_request_diff_id, relative_order, project_id, new_file, renamed_file, deleted_file, too_large, a_mode, b_mode, old_path, new_path, "binary", diff)
VALUES (1, 0, 1, false, false, false, false, '0', '0', 'a', 'a', false, 'a');
