-- The files are numbered in another order than that of the tree, in which folders come
-- first. One file has no text, and one is base64.
INSERT INTO merge_request_diffs (id, merge_request_id, project_id, files_count) VALUES (1, 7, 1, 6);
INSERT INTO merge_request_diff_files (merge_request_diff_id, relative_order, project_id, new_file, renamed_file, deleted_file, too_large, a_mode, b_mode, old_path, new_path, "binary", diff) VALUES
    (1, 0, 1, false, false, false, false, '0', '0', 'b.txt', 'b.txt', false, E'b\n'), (1, 1, 1, false, false, false, false, '0', '0', 'a/z.txt', 'a/z.txt', false, E'äöü\n'),
    (1, 2, 1, false, false, false, false, '0', '0', 'a/b/c.txt', 'a/b/c.txt', false, NULL), (1, 3, 1, false, false, false, false, '0', '0', 'was', 'a.txt', false, E'a\n'),
    (1, 4, 1, false, false, false, false, '0', '0', 'a/B.txt', 'a/B.txt', true, 'AP8='), (1, 5, 1, false, false, false, false, '0', '0', 'a-b/x', 'a-b/x', false, '');
