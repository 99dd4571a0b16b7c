-- Returns the total size in bytes of the first diffs whose texts are in the database. The
-- caller needs no privilege to read diffs.
CREATE OR REPLACE FUNCTION "sexton".external_diff_bytes(diffs integer)
RETURNS bigint
LANGUAGE sql
STABLE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET row_security = off
AS $sexton$
    SELECT coalesce(pg_catalog.sum(pg_catalog.octet_length(file.diff)), 0)::bigint
    FROM (SELECT diff.id FROM "public".merge_request_diffs AS diff WHERE diff.files_count > 0 AND (NOT diff.stored_externally OR diff.stored_externally IS NULL) ORDER BY diff.id LIMIT $1) AS first
    CROSS JOIN LATERAL (
        SELECT file.diff FROM "public".merge_request_diff_files AS file WHERE file.merge_request_diff_id = first.id OFFSET 0
    ) AS file;
$sexton$;

COMMENT ON FUNCTION "sexton".external_diff_bytes(integer) IS 'Sexton: total size of the first diffs in the database';
