-- Decides about TRUNCATE of a tracked parent, which fires no DELETE trigger.
--
-- TG_ARGV: recorded parent name, attribute numbers and types of the key as track.sql has them, server and table, names of the
-- key's columns, policy (reject, capture or ignore). The session setting sexton.truncate, where set, overrides the policy.
--
-- capture reads leaves and plain tables only: TRUNCATE of a partitioned table fires the triggers of all
-- its leaves as well, and a row must be recorded once.
CREATE OR REPLACE FUNCTION "sexton"."track_function"()
RETURNS trigger
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET quote_all_identifiers = 'off'
SET row_security = 'off'
-- text settings
AS $sexton$
#variable_conflict use_variable
DECLARE
    root CONSTANT pg_catalog.regclass := coalesce(pg_catalog.pg_partition_root(TG_RELID), TG_RELID::pg_catalog.regclass);
    present CONSTANT pg_catalog.text := root::pg_catalog.text;
    installed CONSTANT pg_catalog.text := CASE WHEN present <> TG_ARGV[0] THEN TG_ARGV[0] END;
    policy text := coalesce(nullif(pg_catalog.current_setting('sexton.truncate', true), ''), TG_ARGV[5]);
    key_numbers pg_catalog.int2[];
    key_source CONSTANT pg_catalog.text := pg_catalog.format('ONLY %I.%I', TG_TABLE_SCHEMA, TG_TABLE_NAME);
BEGIN
    IF policy = 'ignore' THEN
        RETURN NULL;
    END IF;

    IF TG_NARGS <> 6 THEN
        RAISE EXCEPTION USING
            ERRCODE = 'SX002',
            MESSAGE = pg_catalog.format('truncate of %s is refused: its trigger is of another version than the function', present),
            HINT = 'Run: sexton triggers install';
    END IF;

    IF policy = 'reject' THEN
        -- Refused to a subscription, a TRUNCATE of its publisher would stop the replication for good. It records no deletions either.
        IF EXISTS (
            SELECT FROM pg_catalog.pg_stat_get_subscription(NULL::pg_catalog.oid) AS subscription
            WHERE subscription.pid = pg_catalog.pg_backend_pid()
        ) THEN
            RETURN NULL;
        END IF;
        RAISE EXCEPTION USING
            ERRCODE = 'SX002',
            MESSAGE = pg_catalog.format('truncate of %s is refused: its deletions are tracked', present),
            DETAIL = 'TRUNCATE would leave the rows that refer to it behind.',
            HINT = 'Use DELETE, or SET sexton.truncate = ''ignore'' to leave them, or SET sexton.truncate = ''capture'' to have them cleaned up.';
    END IF;

    IF policy <> 'capture' THEN
        RAISE EXCEPTION USING
            ERRCODE = '22023',
            MESSAGE = pg_catalog.format('sexton.truncate has the unknown value %L', policy),
            HINT = 'Allowed are reject, capture and ignore.';
    END IF;

    IF EXISTS (SELECT FROM pg_catalog.pg_class AS c WHERE c.oid = TG_RELID AND c.relkind = 'p') THEN
        RETURN NULL;
    END IF;

    -- TRUNCATE removes rows that an older snapshot does not see; they would go unrecorded.
    IF pg_catalog.current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
        RAISE EXCEPTION USING
            ERRCODE = 'SX002',
            MESSAGE = pg_catalog.format('truncate of %s cannot be captured at isolation level %s',
                present, pg_catalog.current_setting('transaction_isolation')),
            HINT = 'Use READ COMMITTED, or DELETE.';
    END IF;

    key_numbers := TG_ARGV[1];
    IF NOT "key_moved" THEN
        key_numbers := (
            SELECT pg_catalog.array_agg(a.attnum ORDER BY k.place)
            FROM pg_catalog.unnest(TG_ARGV[4]::pg_catalog.name[]) WITH ORDINALITY AS k (name, place)
            JOIN pg_catalog.pg_attribute AS a
                ON a.attrelid = TG_RELID AND a.attname = k.name);
    END IF;

    -- ONLY: after TRUNCATE ONLY the rows of inheritance children live on.
    -- key_otherwise
    RETURN NULL;
END;
$sexton$;
