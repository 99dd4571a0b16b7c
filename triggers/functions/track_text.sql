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
SET DateStyle = 'ISO, YMD'
SET IntervalStyle = 'postgres'
SET TimeZone = 'UTC'
SET extra_float_digits = '1'
SET bytea_output = 'hex'
AS $sexton$
#variable_conflict use_variable
BEGIN
    INSERT INTO "public".loose_foreign_keys_deleted_records
        (fully_qualified_table_name, primary_key_text)
    SELECT TG_ARGV[0], gone."key_column"::pg_catalog.text
    FROM sexton_deleted AS gone
    WHERE gone."key_column" IS NOT NULL;

    RETURN NULL;
END;
$sexton$;
