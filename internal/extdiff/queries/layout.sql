-- Returns the layout of the object of a diff ($1). place is the position of a file in the order of the tree. at is the offset of its text in bytes.
-- In that order folders come before files of the same folder, and names are compared byte by byte. The first character of each part of branch
-- sorts folders first.
SELECT
    measured.relative_order,
    measured.encoded,
    measured.size,
    (pg_catalog.row_number() OVER tree OPERATOR(pg_catalog.-) 1)::integer AS place,
    coalesce(pg_catalog.sum(measured.size) OVER (tree ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0)::bigint AS at
FROM (
    SELECT
        file.relative_order,
        "sexton".external_diff_encoded(CASE WHEN pg_catalog.getdatabaseencoding() OPERATOR(pg_catalog.=) 'SQL_ASCII' THEN file.diff END) AS encoded,
        ({size})::bigint AS size,
        (
            SELECT pg_catalog.array_agg(
                CASE WHEN part.number OPERATOR(pg_catalog.<) pg_catalog.cardinality(path.parts) THEN '0' ELSE '1' END OPERATOR(pg_catalog.||) part.name
                ORDER BY part.number)
            FROM pg_catalog.unnest(path.parts) WITH ORDINALITY AS part (name, number)
        ) AS branch
    FROM "public".merge_request_diff_files AS file
    CROSS JOIN LATERAL (SELECT pg_catalog.string_to_array(coalesce(file.new_path, file.old_path), '/') AS parts) AS path
    WHERE file.merge_request_diff_id OPERATOR(pg_catalog.=) $1
) AS measured
WINDOW tree AS (ORDER BY measured.branch COLLATE "C", measured.relative_order)
