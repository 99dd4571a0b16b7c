-- Sets the texts of the files of a diff ($1) from the collected pieces. Texts that were moved as base64 are kept in that form. Their column "binary"
-- remains true.
UPDATE "public".merge_request_diff_files AS file
SET diff = pg_catalog.convert_from(
        coalesce((
            SELECT pg_catalog.string_agg(piece.body, ''::pg_catalog.bytea ORDER BY piece.number)
            FROM pg_temp.sexton_pieces AS piece
            WHERE piece.relative_order OPERATOR(pg_catalog.=) file.relative_order
        ), ''::pg_catalog.bytea),
        CASE WHEN pg_catalog.getdatabaseencoding() OPERATOR(pg_catalog.=) 'SQL_ASCII' THEN 'SQL_ASCII' ELSE 'UTF8' END
    ),
    external_diff_offset = NULL,
    external_diff_size = NULL
WHERE file.merge_request_diff_id OPERATOR(pg_catalog.=) $1
