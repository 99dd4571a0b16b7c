INSERT INTO groups (id, name, path) VALUES (1, 'group', 'group');
INSERT INTO projects (id, group_id, name, path) VALUES (1, 1, 'project', 'project');
INSERT INTO merge_requests (id, target_project_id, title, source_branch, target_branch) VALUES (1, 1, 'title', 'branch', 'main');
INSERT INTO merge_request_diffs (id, merge_request_id, project_id, files_count) SELECT id, 1, 1, {{.Files}} FROM generate_series(1, {{.Diffs}}) AS id;
-- The text repeats one of 1 MiB that Postgres finds nothing to compress in: newBlock.
INSERT INTO merge_request_diff_files (
    merge_request_diff_id, relative_order, new_file, renamed_file, deleted_file, too_large, a_mode, b_mode, old_path, new_path, "binary", diff
)
SELECT id, file, false, false, false, false, '100644', '100644', to_char(file, '0000'), to_char(file, '0000'), false, text.diff
FROM generate_series(1, {{.Diffs}}) AS id, generate_series(1, {{.Files}}) AS file, (
    SELECT left(repeat(string_agg(md5(n::text), '' ORDER BY n), ({{.FileBytes}} + 1048575) / 1048576), {{.FileBytes}}) AS diff
    FROM generate_series(1, 32768) AS n
) AS text;
