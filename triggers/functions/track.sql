-- Records deleted parents: a key that is smallint, integer or bigint as a number, any other in its text form, and one of several
-- columns as the text form of the array of their text forms, where commas, quotes and braces in a value are escaped.
--
-- Statement level with a transition table: one set-based INSERT per DELETE statement costs a third of
-- what a row trigger costs from 10,000 rows on. It runs in the deleting transaction, so that a rollback
-- takes the tombstones along.
--
-- A tombstone names the table as it is called now, under the search_path set here with its schema, and a
-- partition's its root, because the children refer to the root whichever of the two the DELETE addressed.
-- TG_ARGV[0] is that name at the time of the installation; it is kept where it differs.
--
-- TG_ARGV[1] has the attribute numbers of the key's columns in the table that the trigger stands on, [2] their types (that of a
-- single column only) and [3] the server and table that they are about: a restored dump has other numbers. Where a
-- column is called otherwise now, or has another type, the statement is put together anew; `triggers install` renews the function.
--
-- A DELETE of a single row pays for each expression here. So the first condition and statement are for a table that is no partition and is
-- called as it was, as are the columns of its key; no DELETE computes that, see is_as_installed. The type of the key is looked at in the
-- statement, beside each row. What has changed is left to the statements behind it.
--
-- The text form of a date, an interval, a float or a bytea depends on settings of the deleting session. They are pinned for such keys, so
-- that the worker reads back the value that was deleted.
CREATE OR REPLACE FUNCTION "sexton"."track_function"()
RETURNS trigger
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
-- text settings
AS $sexton$
#variable_conflict use_variable
BEGIN
    -- as_installed

    IF NOT EXISTS (SELECT FROM sexton_deleted) THEN
        RETURN NULL;
    END IF;

    DECLARE
        -- A SET clause of the function would cost each DELETE a microsecond.
        quoting CONSTANT pg_catalog.text := pg_catalog.current_setting('quote_all_identifiers');
        unquoted CONSTANT pg_catalog.text := pg_catalog.set_config('quote_all_identifiers', 'off', true);
        -- The tables of the name that the trigger was installed under may have been swapped since.
        root CONSTANT pg_catalog.regclass := coalesce(pg_catalog.pg_partition_root(TG_RELID), TG_RELID::pg_catalog.regclass);
        present CONSTANT pg_catalog.text := root::pg_catalog.text;
        installed CONSTANT pg_catalog.text := CASE WHEN present <> TG_ARGV[0] THEN TG_ARGV[0] END;
        key_numbers CONSTANT pg_catalog.int2[] := TG_ARGV[1];
        key_source CONSTANT pg_catalog.text := 'sexton_deleted';
    BEGIN
        PERFORM pg_catalog.set_config('quote_all_identifiers', quoting, true);
        -- Not one condition: each call would start the plans of all its subqueries.
        IF "key_changed" THEN
            IF "key_moved" THEN
                -- key_otherwise
                RETURN NULL;
            END IF;
        END IF;

        INSERT INTO "public".loose_foreign_keys_deleted_records
            (fully_qualified_table_name, parent_oid, tracked_as, "key_slot")
        SELECT present, root, installed, "key_value"
        FROM sexton_deleted AS gone
        WHERE "key_present";
    END;

    RETURN NULL;
END;
$sexton$;
