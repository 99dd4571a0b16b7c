-- Replaces the text of each file of a diff ($1) by offset and size. Files that change their position get a negative position first, because the
-- primary key allows no two files at one position, not even within a statement.
UPDATE "public".merge_request_diff_files AS file
SET diff = NULL,
    external_diff_offset = layout.at::integer,
    external_diff_size = layout.size::integer,
    "binary" = layout.encoded OR coalesce(file."binary", false),
    new_path = CASE WHEN nullable.new_path AND file.new_path OPERATOR(pg_catalog.=) file.old_path THEN NULL ELSE file.new_path END,
    relative_order = CASE WHEN layout.place OPERATOR(pg_catalog.=) file.relative_order THEN layout.place
        ELSE -1 OPERATOR(pg_catalog.-) layout.place END
FROM ({layout}) AS layout
CROSS JOIN (
    SELECT NOT attribute.attnotnull AS new_path
    FROM pg_catalog.pg_attribute AS attribute
    WHERE attribute.attrelid OPERATOR(pg_catalog.=) '"public".merge_request_diff_files'::pg_catalog.regclass
      AND attribute.attname OPERATOR(pg_catalog.=) 'new_path'
) AS nullable
WHERE file.merge_request_diff_id OPERATOR(pg_catalog.=) $1
  AND file.relative_order OPERATOR(pg_catalog.=) layout.relative_order
