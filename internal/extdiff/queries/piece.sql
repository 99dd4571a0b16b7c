-- Returns the text of the file at position $2 of a diff ($1) in pieces of $3 bytes, as it would be written to the object.
SELECT piece.number, substring(text.body FROM piece.number * $3 + 1 FOR $3)
FROM (
    SELECT "sexton".external_diff_body(file.diff) AS body
    FROM "public".merge_request_diff_files AS file
    WHERE file.merge_request_diff_id = $1
      AND file.relative_order = $2
    OFFSET 0
) AS text
CROSS JOIN LATERAL pg_catalog.generate_series(0, (pg_catalog.octet_length(text.body) - 1) / $3) AS piece (number)
WHERE pg_catalog.octet_length(text.body) > 0
