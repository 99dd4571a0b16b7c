-- Returns the backlog of diffs to be moved; see "sexton".backlog. It counts diffs in the
-- database, due or not, up to 10,000. Their age is unknown.
CREATE OR REPLACE FUNCTION "sexton".backlog_of_external_diffs()
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

COMMENT ON FUNCTION "sexton".backlog_of_external_diffs() IS 'Sexton: diffs whose texts are in the database';
