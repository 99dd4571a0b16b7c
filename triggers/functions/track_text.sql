-- Records deleted parents whose key is neither smallint, integer nor bigint, in its text form.
--
-- As track_bigint.sql, with one difference: the text form of a date, an interval, a float or a bytea
-- depends on settings of the deleting session. They are pinned here, so that the worker reads back the
-- value that was deleted.
CREATE OR REPLACE FUNCTION "sexton"."track_function"()
RETURNS trigger
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET quote_all_identifiers = 'off'
SET DateStyle = 'ISO, YMD'
SET IntervalStyle = 'postgres'
SET TimeZone = 'UTC'
SET extra_float_digits = '1'
SET bytea_output = 'hex'
AS $sexton$
#variable_conflict use_variable
DECLARE
    -- The tables of the name that the trigger was installed under may have been swapped since.
    root CONSTANT pg_catalog.regclass := coalesce(pg_catalog.pg_partition_root(TG_RELID), TG_RELID::pg_catalog.regclass);
    present CONSTANT pg_catalog.text := root::pg_catalog.text;
    installed CONSTANT pg_catalog.text := CASE WHEN present <> TG_ARGV[0] THEN TG_ARGV[0] END;
    key_numbers CONSTANT pg_catalog.int2[] := TG_ARGV[1];
    key_source CONSTANT pg_catalog.text := 'sexton_deleted';
BEGIN
    IF NOT EXISTS (
        SELECT
        FROM pg_catalog.pg_attribute AS a
        WHERE a.attrelid OPERATOR(pg_catalog.=) TG_RELID AND a.attnum OPERATOR(pg_catalog.=) key_numbers[1]
            AND a.attname OPERATOR(pg_catalog.=) 'key_name'::pg_catalog.name
            AND a.atttypid OPERATOR(pg_catalog.=) TG_ARGV[2]::pg_catalog.oid
    ) AND "key_moved" THEN
        -- key_otherwise
        RETURN NULL;
    END IF;

    INSERT INTO "public".loose_foreign_keys_deleted_records
        (fully_qualified_table_name, parent_oid, tracked_as, primary_key_text)
    SELECT present, root, installed, gone."key_column"::pg_catalog.text
    FROM sexton_deleted AS gone
    WHERE gone."key_column" IS NOT NULL;

    RETURN NULL;
END;
$sexton$;
