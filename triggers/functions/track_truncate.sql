-- Decides about TRUNCATE of a tracked parent, which fires no DELETE trigger.
--
-- TG_ARGV: recorded parent name, key column, policy (reject, capture or ignore), key class (bigint, text
-- or composite, where the second one is an array of columns). The session setting sexton.truncate, where set, overrides the policy.
--
-- capture reads leaves and plain tables only: TRUNCATE of a partitioned table fires the triggers of all
-- its leaves as well, and a row must be recorded once.
CREATE OR REPLACE FUNCTION "sexton"."track_function"()
RETURNS trigger
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET row_security = 'off'
SET DateStyle = 'ISO, YMD'
SET IntervalStyle = 'postgres'
SET TimeZone = 'UTC'
SET extra_float_digits = '1'
SET bytea_output = 'hex'
AS $sexton$
#variable_conflict use_variable
DECLARE
    policy text := coalesce(nullif(current_setting('sexton.truncate', true), ''), TG_ARGV[2]);
BEGIN
    IF policy = 'ignore' THEN
        RETURN NULL;
    END IF;

    IF policy = 'reject' THEN
        RAISE EXCEPTION USING
            ERRCODE = 'SX002',
            MESSAGE = format('truncate of %s is refused: its deletions are tracked', TG_ARGV[0]),
            DETAIL = 'TRUNCATE would leave the rows that refer to it behind.',
            HINT = 'Use DELETE, or SET sexton.truncate = ''ignore'' to leave them, or SET sexton.truncate = ''capture'' to have them cleaned up.';
    END IF;

    IF policy <> 'capture' THEN
        RAISE EXCEPTION USING
            ERRCODE = '22023',
            MESSAGE = format('sexton.truncate has the unknown value %L', policy),
            HINT = 'Allowed are reject, capture and ignore.';
    END IF;

    IF EXISTS (SELECT FROM pg_class AS c WHERE c.oid = TG_RELID AND c.relkind = 'p') THEN
        RETURN NULL;
    END IF;

    -- TRUNCATE removes rows that an older snapshot does not see; they would go unrecorded.
    IF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
        RAISE EXCEPTION USING
            ERRCODE = 'SX002',
            MESSAGE = format('truncate of %s cannot be captured at isolation level %s',
                TG_ARGV[0], current_setting('transaction_isolation')),
            HINT = 'Use READ COMMITTED, or DELETE.';
    END IF;

    -- ONLY: after TRUNCATE ONLY the rows of inheritance children live on.
    IF TG_ARGV[3] = 'composite' THEN
        EXECUTE (
            SELECT format(
                'INSERT INTO %5$I.loose_foreign_keys_deleted_records (fully_qualified_table_name, primary_key_text) '
                'SELECT $1, ARRAY[%1$s]::pg_catalog.text FROM ONLY %3$I.%4$I AS gone WHERE num_nulls(%2$s) = 0',
                string_agg(format('gone.%I::pg_catalog.text', key.name), ', ' ORDER BY key.place),
                string_agg(format('gone.%I', key.name), ', '),
                TG_TABLE_SCHEMA,
                TG_TABLE_NAME,
                'tracked_schema')
            FROM unnest(TG_ARGV[1]::text[]) WITH ORDINALITY AS key (name, place))
        USING TG_ARGV[0];

        RETURN NULL;
    END IF;

    EXECUTE format(
        'INSERT INTO %6$I.loose_foreign_keys_deleted_records (fully_qualified_table_name, %1$I) '
        'SELECT $1, gone.%2$I::pg_catalog.%3$I FROM ONLY %4$I.%5$I AS gone WHERE gone.%2$I IS NOT NULL',
        CASE TG_ARGV[3] WHEN 'bigint' THEN 'primary_key_value' ELSE 'primary_key_text' END,
        TG_ARGV[1],
        CASE TG_ARGV[3] WHEN 'bigint' THEN 'int8' ELSE 'text' END,
        TG_TABLE_SCHEMA,
        TG_TABLE_NAME,
        'tracked_schema')
    USING TG_ARGV[0];

    RETURN NULL;
END;
$sexton$;
