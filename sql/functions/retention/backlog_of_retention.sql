-- Returns the backlog of retention rules, see "sexton".backlog. The numbers come from the
-- last pass: rows that became due since then are not counted, and neither are rules with
-- dry_run. Deferred rows are rows that could not be deleted.
CREATE OR REPLACE FUNCTION "sexton".backlog_of_retention()
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
        'retention_rules',
        least(coalesce(pg_catalog.sum(rule.pending), 0), 10000)::bigint,
        coalesce(pg_catalog.bool_or(rule.capped) OR pg_catalog.sum(rule.pending) > 10000, false),
        coalesce(greatest(extract(epoch FROM pg_catalog.clock_timestamp() - pg_catalog.min(rule.due_since)), 0), 0)::double precision,
        least(coalesce(pg_catalog.sum(rule.kept), 0), coalesce(pg_catalog.sum(rule.pending), 0))::bigint,
        NULL::pg_catalog.timestamptz,
        "sexton".reasons(coalesce(pg_catalog.array_agg(rule.last_error) FILTER (WHERE rule.last_error IS NOT NULL), '{}'))
    FROM "sexton".retention_rules AS rule
    WHERE NOT rule.dry_run;
$sexton$;

COMMENT ON FUNCTION "sexton".backlog_of_retention() IS 'Sexton: due rows that the last pass of the retention rules left';
