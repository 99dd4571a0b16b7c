-- Returns the backlog of objects to be removed from the store; see "sexton".backlog.
-- Counts stop at 10,000. The age is the time since the first object was queued.
CREATE OR REPLACE FUNCTION "sexton".backlog_of_external_diff_removals()
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
AS $sexton$
    SELECT
        'external_diff_removals',
        least(counts.pending, 10000),
        counts.pending > 10000,
        coalesce((
            SELECT greatest(extract(epoch FROM pg_catalog.clock_timestamp() - removal.queued_at), 0)
            FROM "sexton".external_diff_removals AS removal
            ORDER BY removal.id
            LIMIT 1
        ), 0)::double precision,
        counts.deferred,
        (SELECT pg_catalog.min(removal.not_before) FROM "sexton".external_diff_removals AS removal WHERE removal.not_before > pg_catalog.statement_timestamp()),
        "sexton".reasons(ARRAY(
            SELECT removal.last_error
            FROM "sexton".external_diff_removals AS removal
            WHERE removal.not_before > pg_catalog.statement_timestamp()
            ORDER BY removal.not_before
            LIMIT 500
        ) || CASE WHEN counts.deferred > 500 THEN ARRAY['+']::pg_catalog.text[] ELSE '{}' END)
    FROM (
        SELECT
            (SELECT pg_catalog.count(*) FROM (SELECT FROM "sexton".external_diff_removals LIMIT 10001) AS counted) AS pending,
            (SELECT pg_catalog.count(*) FROM (
                SELECT FROM "sexton".external_diff_removals AS removal WHERE removal.not_before > pg_catalog.statement_timestamp() LIMIT 10001
            ) AS counted) AS deferred
        -- OFFSET 0 keeps the planner from inlining this subquery. Otherwise each use of a
        -- count would count again.
        OFFSET 0
    ) AS counts;
$sexton$;

COMMENT ON FUNCTION "sexton".backlog_of_external_diff_removals() IS 'Sexton: objects of deleted diffs that are queued for removal';
