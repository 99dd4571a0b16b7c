-- Decides about TRUNCATE of a tracked parent, which fires no DELETE trigger.
--
-- TG_ARGV: recorded parent name, policy (reject or ignore). The session setting sexton.truncate, where set, overrides the policy.
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
    -- Refused to a subscription, a TRUNCATE of its publisher would stop the replication for good.
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
            DETAIL = 'TRUNCATE would leave the rows that refer to it behind.',
            HINT = 'Use DELETE, or SET sexton.truncate = ''ignore'' to leave them.';
    END IF;

    RAISE EXCEPTION USING
        ERRCODE = '22023',
        MESSAGE = pg_catalog.format('sexton.truncate has the unknown value %L', policy),
        HINT = 'Allowed are reject and ignore.';
END;
$sexton$;
