-- Returns the backlog of due groups; see "sexton".backlog. Counts stop at 10,000. The age
-- is the time since the first group became due. The age is 0 if no period is set, because
-- no group is due then.
CREATE OR REPLACE FUNCTION "sexton".backlog_of_adjourned_groups()
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
    SELECT
        'group_deletion_schedules',
        least(counts.due, 10000),
        counts.due > 10000,
        coalesce((
            SELECT greatest(extract(epoch FROM pg_catalog.statement_timestamp()
                - (pg_catalog.min(groups.marked_for_deletion_on) + (counts.day - counts.cutoff) + 1)::timestamp AT TIME ZONE 'UTC'), 0)
            FROM "public".group_deletion_schedules AS schedule JOIN "public".groups ON groups.id = schedule.group_id
            WHERE groups.marked_for_deletion_on < counts.cutoff
        ), 0)::double precision,
        counts.failed,
        (SELECT pg_catalog.min(failure.retry_at) FROM "sexton".group_deletion_failures AS failure WHERE failure.retry_at > pg_catalog.statement_timestamp()),
        "sexton".reasons(ARRAY(
            SELECT failure.last_error
            FROM "sexton".group_deletion_failures AS failure
            WHERE failure.retry_at > pg_catalog.statement_timestamp()
            ORDER BY failure.retry_at
            LIMIT 500
        ) || CASE WHEN counts.failed > 500 THEN ARRAY['+']::pg_catalog.text[] ELSE '{}' END)
    FROM (
        SELECT
            today.day,
            today.cutoff,
            (SELECT pg_catalog.count(*) FROM (
                SELECT FROM "public".group_deletion_schedules AS schedule JOIN "public".groups ON groups.id = schedule.group_id
                WHERE groups.marked_for_deletion_on < today.cutoff
                LIMIT 10001
            ) AS counted) AS due,
            (SELECT pg_catalog.count(*) FROM (
                SELECT FROM "sexton".group_deletion_failures AS failure WHERE failure.retry_at > pg_catalog.statement_timestamp() LIMIT 10001
            ) AS counted) AS failed
        FROM (SELECT (pg_catalog.statement_timestamp() AT TIME ZONE 'UTC')::pg_catalog.date, "sexton".group_deletion_cutoff()) AS today (day, cutoff)
        -- OFFSET 0 keeps the planner from inlining this subquery. Otherwise each use of a
        -- count would count again.
        OFFSET 0
    ) AS counts;
$sexton$;

COMMENT ON FUNCTION "sexton".backlog_of_adjourned_groups() IS 'Sexton: due groups that are not destroyed yet';
