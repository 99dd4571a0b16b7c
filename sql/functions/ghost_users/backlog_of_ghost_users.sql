-- Returns the backlog of users to be deleted; see "sexton".backlog. Counts stop at
-- 10,000. The age is the time since the first user was queued.
CREATE OR REPLACE FUNCTION "sexton".backlog_of_ghost_users()
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
        'users_ghost_user_migrations',
        least(counts.pending, 10000),
        counts.pending > 10000,
        coalesce((
            SELECT greatest(extract(epoch FROM pg_catalog.clock_timestamp() - job.created_at), 0)
            FROM "public".users_ghost_user_migrations AS job
            ORDER BY job.id
            LIMIT 1
        ), 0)::double precision,
        counts.deferred,
        (SELECT pg_catalog.min(job.consume_after) FROM "public".users_ghost_user_migrations AS job WHERE job.consume_after > pg_catalog.statement_timestamp()),
        "sexton".reasons(ARRAY(
            SELECT job.last_error
            FROM "public".users_ghost_user_migrations AS job
            WHERE job.consume_after > pg_catalog.statement_timestamp()
            ORDER BY job.consume_after
            LIMIT 500
        ) || CASE WHEN counts.deferred > 500 THEN ARRAY['+']::pg_catalog.text[] ELSE '{}' END)
    FROM (
        SELECT
            (SELECT pg_catalog.count(*) FROM (SELECT FROM "public".users_ghost_user_migrations LIMIT 10001) AS counted) AS pending,
            (SELECT pg_catalog.count(*) FROM (
                SELECT FROM "public".users_ghost_user_migrations AS job WHERE job.consume_after > pg_catalog.statement_timestamp() LIMIT 10001
            ) AS counted) AS deferred
        -- OFFSET 0 keeps the planner from inlining this subquery. Otherwise each use of a
        -- count would count again.
        OFFSET 0
    ) AS counts;
$sexton$;

COMMENT ON FUNCTION "sexton".backlog_of_ghost_users() IS 'Sexton: queued users that are not deleted yet';
