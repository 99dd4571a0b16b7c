-- Returns the content of the object of a diff ($1) in pieces of $2 bytes, with the place of the file and the number of the piece. The first piece is
-- piece $4 of the file at place $3. LATERAL requires nested loops, which return the pieces in order. A sort would write the content to temporary files.
-- OFFSET 0 makes the server decompress each text once instead of once per piece.
SELECT layout.place, piece.number, substring(text.body FROM (piece.number OPERATOR(pg_catalog.*) $2) OPERATOR(pg_catalog.+) 1 FOR $2)
FROM (SELECT * FROM ({layout}) AS layout
    WHERE layout.size OPERATOR(pg_catalog.>) 0 AND layout.place OPERATOR(pg_catalog.>=) $3 ORDER BY layout.place OFFSET 0
) AS layout
CROSS JOIN LATERAL (
    SELECT "sexton".external_diff_body(file.diff) AS body
    FROM "public".merge_request_diff_files AS file
    WHERE file.merge_request_diff_id OPERATOR(pg_catalog.=) $1
      AND file.relative_order OPERATOR(pg_catalog.=) layout.relative_order
    OFFSET 0
) AS text
CROSS JOIN LATERAL pg_catalog.generate_series(
    CASE WHEN layout.place OPERATOR(pg_catalog.=) $3 THEN $4 ELSE 0 END,
    (pg_catalog.octet_length(text.body) OPERATOR(pg_catalog.-) 1) OPERATOR(pg_catalog./) $2
) AS piece (number)
