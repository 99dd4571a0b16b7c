-- Records deleted parents whose key has several columns, as the text form of the array of their text forms:
-- commas, quotes and braces in a value are escaped there.
--
-- As track_text.sql otherwise. A row with NULL in one of the columns is skipped, as nothing can refer to it.
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
    IF (
        SELECT pg_catalog.count(*)
        FROM ROWS FROM (pg_catalog.unnest(key_numbers), pg_catalog.unnest('key_names'::pg_catalog.name[])) AS k (number, name)
        JOIN pg_catalog.pg_attribute AS a
            ON a.attrelid OPERATOR(pg_catalog.=) TG_RELID AND a.attnum OPERATOR(pg_catalog.=) k.number
            AND a.attname OPERATOR(pg_catalog.=) k.name
    ) OPERATOR(pg_catalog.<>) pg_catalog.cardinality(key_numbers) AND "key_moved" THEN
        -- key_otherwise
        RETURN NULL;
    END IF;

    INSERT INTO "public".loose_foreign_keys_deleted_records
        (fully_qualified_table_name, parent_oid, tracked_as, primary_key_text)
    SELECT present, root, installed, ARRAY["key_texts"]::pg_catalog.text
    FROM sexton_deleted AS gone
    WHERE pg_catalog.num_nulls("key_columns") = 0;

    RETURN NULL;
END;
$sexton$;
