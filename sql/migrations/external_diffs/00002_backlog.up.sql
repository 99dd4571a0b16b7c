-- The backlog of diffs to be moved; see "sexton".backlog. It counts what is in the database, due or not, up to 10,000. Nothing
-- tells since when a diff waits.
CREATE FUNCTION "sexton".backlog_of_external_diffs()
RETURNS TABLE (
    deletion_table text,
    pending bigint,
    capped boolean,
    oldest_age_seconds double precision,
    deferred bigint,
    deferred_until timestamptz,
    deferred_reason text
)
LANGUAGE sql
STABLE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET row_security = off
AS $sexton$
    SELECT 'merge_request_diffs', least(counts.pending, 10000), counts.pending > 10000, 0::double precision, 0::bigint, NULL::pg_catalog.timestamptz, NULL
    FROM (
        SELECT pg_catalog.count(*) AS pending
        FROM (SELECT FROM "public".merge_request_diffs AS diff WHERE diff.files_count > 0 AND (NOT diff.stored_externally OR diff.stored_externally IS NULL) LIMIT 10001) AS counted
    ) AS counts;
$sexton$;

REVOKE ALL ON FUNCTION "sexton".backlog_of_external_diffs() FROM PUBLIC;

COMMENT ON FUNCTION "sexton".backlog_of_external_diffs() IS 'Sexton: diffs whose texts are in the database';

-- Returns the bytes of the first so many diffs in the database. Who may know how many there are need not read them.
CREATE FUNCTION "sexton".external_diff_bytes(diffs integer)
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

REVOKE ALL ON FUNCTION "sexton".external_diff_bytes(integer) FROM PUBLIC;

COMMENT ON FUNCTION "sexton".external_diff_bytes(integer) IS 'Sexton: bytes of the first diffs in the database';

INSERT INTO "sexton".objects (kind, identity, component) VALUES
    ('function', '"sexton".backlog_of_external_diffs()', 'external_diffs'),
    ('function', '"sexton".external_diff_bytes(integer)', 'external_diffs');
