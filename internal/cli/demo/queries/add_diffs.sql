-- Adds a version to each of $1 merge requests. It has three files: plain text, letters of more than one byte, and an empty file.
WITH picked AS (
    SELECT request.id, request.target_project_id FROM "public".merge_requests AS request
    WHERE request.id >= (SELECT random() * max(newest.id) FROM "public".merge_requests AS newest)
    ORDER BY request.id LIMIT $1 FOR NO KEY UPDATE SKIP LOCKED
),
added AS (
    INSERT INTO "public".merge_request_diffs (merge_request_id, project_id, state, files_count, commits_count, real_size)
    SELECT picked.id, picked.target_project_id, 'collected', 3, 1, '3' FROM picked
    RETURNING id, merge_request_id, project_id
),
files AS (
    INSERT INTO "public".merge_request_diff_files (
        merge_request_diff_id, relative_order, project_id, new_file, renamed_file, deleted_file, too_large, a_mode, b_mode, old_path, new_path, diff
    )
    SELECT added.id, file.place, added.project_id, false, false, false, false, '100644', '100644', file.path, file.path,
        CASE WHEN file.line <> '' THEN E'@@ -1,1 +1,200 @@\n' || repeat('+' || file.line || md5(random()::text || added.id) || E'\n', 200) ELSE '' END
    FROM added
    CROSS JOIN (VALUES (0, 'go.mod', 'module '), (1, 'doc/über.md', 'Größe '), (2, 'app/empty.txt', '')) AS file (place, path, line)
    RETURNING merge_request_diff_id
),
latest AS (
    UPDATE "public".merge_requests AS request SET latest_merge_request_diff_id = added.id FROM added WHERE request.id = added.merge_request_id
)
SELECT (SELECT count(*) FROM added), EXISTS (SELECT FROM "public".merge_requests)
