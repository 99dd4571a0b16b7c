-- Sets the final positions of files of a diff ($1) that switch.sql has moved to negative positions.
UPDATE "public".merge_request_diff_files AS file
SET relative_order = -1 OPERATOR(pg_catalog.-) file.relative_order
WHERE file.merge_request_diff_id OPERATOR(pg_catalog.=) $1
  AND file.relative_order OPERATOR(pg_catalog.<) 0
