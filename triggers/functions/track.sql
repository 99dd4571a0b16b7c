-- Records deleted parents. A smallint, integer or bigint key is recorded as a number, and
-- any other in its text form. A key of several columns is recorded as the text form of
-- the array of their text forms, which escapes commas, quotes and braces.
--
-- The trigger is a statement trigger with a transition table. From 10,000 rows on, its
-- one INSERT per DELETE statement takes a third of the time of a row trigger. The
-- function runs in the deleting transaction, so a rollback also removes the tombstones.
--
-- A tombstone has the current qualified name of the table, and the root's name for a
-- partition, because children refer to the root. TG_ARGV[0] is that name at the time of
-- the installation. If it differs from the current name, the tombstone has both names.
--
-- TG_ARGV[1] has the attribute numbers of the key's columns in the trigger's table, and
-- TG_ARGV[2] their types, which are used only for a single column. TG_ARGV[3] has the
-- server and the table that the numbers belong to, because a restored dump has other
-- numbers. If a column has been renamed or has another type, the function builds the
-- statement at run time, until `triggers install` replaces the function.
--
-- Each expression here slows down a DELETE of a single row. So the first condition and
-- statement handle only the usual case: the table is not a partition, and table and key
-- have the same names as at the installation. is_as_installed checks that once per
-- session. The first statement itself checks the type of the key, for each row. The later
-- statements handle all other cases.
--
-- The text form of a date, an interval, a float or a bytea depends on settings of the
-- session. The function fixes these settings for such keys, so that the worker reads the
-- deleted value from the text.
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
        -- quote_all_identifiers is switched off here, because a SET clause of the
        -- function would cost each DELETE a microsecond.
        quoting CONSTANT pg_catalog.text := pg_catalog.current_setting('quote_all_identifiers');
        unquoted CONSTANT pg_catalog.text := pg_catalog.set_config('quote_all_identifiers', 'off', true);
        -- The table may have been renamed since the installation.
        root CONSTANT pg_catalog.regclass := coalesce(pg_catalog.pg_partition_root(TG_RELID), TG_RELID::pg_catalog.regclass);
        present CONSTANT pg_catalog.text := root::pg_catalog.text;
        installed CONSTANT pg_catalog.text := CASE WHEN present <> TG_ARGV[0] THEN TG_ARGV[0] END;
        key_numbers CONSTANT pg_catalog.int2[] := TG_ARGV[1];
        key_source CONSTANT pg_catalog.text := 'sexton_deleted';
    BEGIN
        PERFORM pg_catalog.set_config('quote_all_identifiers', quoting, true);
        -- These are two conditions, because each evaluation of a single condition would
        -- start the plans of all its subqueries.
        IF "key_changed" THEN
            IF "key_moved" THEN
                -- key_otherwise
                RETURN NULL;
            END IF;
        END IF;

        INSERT INTO "public".loose_foreign_keys_deleted_records
            (fully_qualified_table_name, parent_oid, tracked_as, "key_slot")
        SELECT present, root, installed, "key_value"
        FROM sexton_deleted AS deleted
        WHERE "key_present";
    END;

    RETURN NULL;
END;
$sexton$;
