-- Files and a diff without a project get the project of the merge request. A file is not
-- base64 if "binary" is NULL.
ALTER TABLE merge_request_diffs DROP project_id;
INSERT INTO merge_request_diffs (id, merge_request_id, files_count) VALUES (1, 7, 3);
INSERT INTO merge_request_diff_files (merge_request_diff_id, relative_order, project_id, new_file, renamed_file, deleted_file, too_large, a_mode, b_mode, old_path, new_path, "binary", diff) VALUES
    (1, 0, NULL, false, false, false, false, '0', '0', 'a', NULL, NULL, 'a'), (1, 1, 2, false, false, false, false, '0', '0', 'b', NULL, true, '/w=='),
    (1, 2, NULL, false, false, false, false, '0', '0', 'c', NULL, true, 'AA==');
UPDATE merge_requests SET target_project_id = 2;
