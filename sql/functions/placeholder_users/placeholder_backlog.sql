-- Returns the backlog of placeholder users under the given rules. pending counts the
-- placeholders whose group was deleted and that have attempts left. Placeholders in the
-- queue of users are not counted here, but in the backlog of that queue. given_up counts
-- placeholders without attempts left. Counts stop at 10,000. The age is the time since
-- the first due placeholder became due.
CREATE OR REPLACE FUNCTION "sexton".placeholder_backlog(max_attempts integer, retry_seconds double precision)
RETURNS TABLE (
    deletion_table text,
    pending bigint,
    capped boolean,
    oldest_age_seconds double precision,
    deferred bigint,
    deferred_until timestamptz,
    deferred_reason text,
    given_up bigint
)
LANGUAGE plpgsql
STABLE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET row_security = off
AS $sexton$
BEGIN
    RETURN QUERY SELECT
        'import_placeholder_user_details',
        least(counts.pending, 10000),
        counts.pending > 10000,
        greatest(coalesce(extract(epoch FROM pg_catalog.statement_timestamp() - least(
            (SELECT pg_catalog.min(untried.created_at) FROM (
                SELECT detail.created_at
                FROM "public".import_placeholder_user_details AS detail
                WHERE detail.namespace_id IS NULL
                  AND detail.deletion_attempts < $1
                  AND detail.last_deletion_attempt_at IS NULL
                  AND pg_catalog.isfinite(detail.created_at)
                  AND NOT EXISTS (
                      SELECT FROM "public".users_ghost_user_migrations AS queued WHERE queued.user_id = detail.placeholder_user_id
                  )
                LIMIT 10001
            ) AS untried),
            (SELECT pg_catalog.min(tried.last_deletion_attempt_at) + pg_catalog.make_interval(secs => $2) FROM (
                SELECT detail.last_deletion_attempt_at
                FROM "public".import_placeholder_user_details AS detail
                WHERE detail.namespace_id IS NULL
                  AND detail.deletion_attempts < $1
                  AND detail.last_deletion_attempt_at < pg_catalog.statement_timestamp() - pg_catalog.make_interval(secs => $2)
                  AND pg_catalog.isfinite(detail.last_deletion_attempt_at)
                  AND NOT EXISTS (
                      SELECT FROM "public".users_ghost_user_migrations AS queued WHERE queued.user_id = detail.placeholder_user_id
                  )
                LIMIT 10001
            ) AS tried)
        )), 0), 0)::double precision,
        least(counts.deferred, counts.pending),
        first.retry_at,
        first.reasons,
        least(counts.given_up, 10000)
    FROM (
        SELECT
            (SELECT pg_catalog.count(*) FROM (
                SELECT FROM "public".import_placeholder_user_details AS detail
                WHERE detail.namespace_id IS NULL
                  AND detail.deletion_attempts < $1
                  AND NOT EXISTS (
                      SELECT FROM "public".users_ghost_user_migrations AS queued WHERE queued.user_id = detail.placeholder_user_id
                  )
                LIMIT 10001
            ) AS counted) AS pending,
            (SELECT pg_catalog.count(*) FROM (
                SELECT FROM "public".import_placeholder_user_details AS detail
                WHERE detail.namespace_id IS NULL
                  AND detail.deletion_attempts < $1
                  AND detail.last_deletion_attempt_at >= pg_catalog.statement_timestamp() - pg_catalog.make_interval(secs => $2)
                  AND NOT EXISTS (
                      SELECT FROM "public".users_ghost_user_migrations AS queued WHERE queued.user_id = detail.placeholder_user_id
                  )
                LIMIT 10001
            ) AS counted) AS deferred,
            (SELECT pg_catalog.count(*) FROM (
                SELECT FROM "public".import_placeholder_user_details AS detail
                WHERE detail.namespace_id IS NULL
                  AND detail.deletion_attempts >= $1
                  AND NOT EXISTS (
                      SELECT FROM "public".users_ghost_user_migrations AS queued WHERE queued.user_id = detail.placeholder_user_id
                  )
                  -- While the job of the last attempt has not finished, the placeholder
                  -- is not given up.
                  AND NOT "sexton".job_waits('import_delete_placeholder_user', '{"user_id":' || detail.placeholder_user_id || '}')
                  AND EXISTS (
                      SELECT FROM "public".users AS placeholder
                      WHERE placeholder.id = detail.placeholder_user_id AND placeholder.user_type = 15
                  )
                LIMIT 10000
            ) AS counted) AS given_up
        -- OFFSET 0 keeps the planner from inlining this subquery. Otherwise each use of a
        -- count would count again.
        OFFSET 0
    ) AS counts
    -- The index begins with the number of attempts, so the query scans one range per
    -- number.
    LEFT JOIN LATERAL (
        SELECT
            pg_catalog.min(soonest.last_deletion_attempt_at) + pg_catalog.make_interval(secs => $2) AS retry_at,
            "sexton".reasons(pg_catalog.array_agg(soonest.last_error) || CASE WHEN counts.deferred > 500 THEN ARRAY['+']::pg_catalog.text[] ELSE '{}' END) AS reasons
        FROM (
            SELECT next.last_deletion_attempt_at, next.last_error
            FROM pg_catalog.generate_series(0, $1 - 1) AS tried (times)
            CROSS JOIN LATERAL (
                SELECT detail.last_deletion_attempt_at, detail.last_error
                FROM "public".import_placeholder_user_details AS detail
                WHERE detail.namespace_id IS NULL
                  AND detail.deletion_attempts = tried.times
                  AND detail.last_deletion_attempt_at >= pg_catalog.statement_timestamp() - pg_catalog.make_interval(secs => $2)
                  AND detail.last_deletion_attempt_at < 'infinity'
                  AND NOT EXISTS (
                      SELECT FROM "public".users_ghost_user_migrations AS queued WHERE queued.user_id = detail.placeholder_user_id
                  )
                ORDER BY detail.last_deletion_attempt_at
                LIMIT 500
            ) AS next
            ORDER BY next.last_deletion_attempt_at
            LIMIT 500
        ) AS soonest
    ) AS first ON true;
END;
$sexton$;

COMMENT ON FUNCTION "sexton".placeholder_backlog(integer, double precision) IS 'Sexton: backlog of placeholder users under given rules';
