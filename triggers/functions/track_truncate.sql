-- Refuses or ignores TRUNCATE of a tracked parent, which fires no DELETE trigger.
--
-- TG_ARGV[0] is the recorded name of the parent, and TG_ARGV[1] the policy (reject or
-- ignore). The session setting sexton.truncate overrides the policy.
CREATE OR REPLACE FUNCTION "sexton"."track_function"()
RETURNS trigger
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET quote_all_identifiers = 'off'
AS $sexton$
#variable_conflict use_variable
DECLARE
    present CONSTANT pg_catalog.text := coalesce(pg_catalog.pg_partition_root(TG_RELID), TG_RELID::pg_catalog.regclass)::pg_catalog.text;
    policy CONSTANT pg_catalog.text := coalesce(nullif(pg_catalog.current_setting('sexton.truncate', true), ''), TG_ARGV[1]);
BEGIN
    -- A subscription may always truncate, because a refused TRUNCATE of the publisher
    -- would stop the replication permanently.
    IF policy = 'ignore' OR policy = 'reject' AND EXISTS (
        SELECT FROM pg_catalog.pg_stat_get_subscription(NULL::pg_catalog.oid) AS subscription
        WHERE subscription.pid = pg_catalog.pg_backend_pid()
    ) THEN
        RETURN NULL;
    END IF;

    IF policy = 'reject' THEN
        RAISE EXCEPTION USING
            ERRCODE = 'SX002',
            MESSAGE = pg_catalog.format('truncate of %s is refused: its deletions are tracked', present),
            DETAIL = 'TRUNCATE would leave rows that refer to the table.',
            HINT = 'Use DELETE, or SET sexton.truncate = ''ignore'' to leave these rows.';
    END IF;

    RAISE EXCEPTION USING
        ERRCODE = '22023',
        MESSAGE = pg_catalog.format('sexton.truncate has the invalid value %L', policy),
        HINT = 'Valid values are reject and ignore.';
END;
$sexton$;
