-- Returns the backlog of placeholder users under the workers' rules; see
-- "sexton".backlog.
CREATE OR REPLACE FUNCTION "sexton".backlog_of_placeholder_users()
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
    SELECT b.deletion_table, b.pending, b.capped, b.oldest_age_seconds, b.deferred, b.deferred_until, b.deferred_reason
    FROM "sexton".placeholder_rules AS rules
    CROSS JOIN LATERAL "sexton".placeholder_backlog(rules.max_attempts, rules.retry_seconds) AS b;
$sexton$;

COMMENT ON FUNCTION "sexton".backlog_of_placeholder_users() IS 'Sexton: placeholder users that are not deleted yet';
