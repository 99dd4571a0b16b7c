-- Locks the files of a diff ($1) and returns the fingerprint of the locked versions, which may be newer than the snapshot.
SELECT {fingerprint}
FROM (
    SELECT file.relative_order, file.xmin
    FROM "public".merge_request_diff_files AS file
    WHERE file.merge_request_diff_id OPERATOR(pg_catalog.=) $1
    FOR UPDATE
) AS file
