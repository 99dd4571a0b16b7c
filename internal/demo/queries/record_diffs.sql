-- What the files of a diff had in them when they were in the database.
CREATE SCHEMA IF NOT EXISTS demo;
DROP TABLE IF EXISTS demo.diffs;
CREATE UNLOGGED TABLE demo.diffs AS
SELECT diff.id AS diff_id, diff.merge_request_id, coalesce(file.new_path, file.old_path) AS path, sha256(convert_to(file.diff, 'UTF8')) AS sha256
FROM "public".merge_request_diffs AS diff
JOIN "public".merge_request_diff_files AS file ON file.merge_request_diff_id = diff.id
WHERE diff.stored_externally IS NOT TRUE
