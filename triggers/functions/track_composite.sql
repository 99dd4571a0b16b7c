-- Records deleted parents whose key has several columns, as the text form of the array of their text forms:
-- commas, quotes and braces in a value are escaped there.
--
-- As track_text.sql otherwise. A row with NULL in one of the columns is skipped, as nothing can refer to it.
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
    SELECT TG_ARGV[0], ARRAY["key_texts"]::pg_catalog.text
    FROM sexton_deleted AS gone
    WHERE num_nulls("key_columns") = 0;

    RETURN NULL;
END;
$sexton$;
