-- Records deleted parents whose key is smallint, integer or bigint.
--
-- Statement level with a transition table: one set-based INSERT per DELETE statement costs a third of
-- what a row trigger costs from 10,000 rows on. It runs in the deleting transaction, so that a rollback
-- takes the tombstones along.
--
-- TG_ARGV[0] is the recorded parent name. A partition carries the name of its root, because the
-- children refer to the root whichever of the two the DELETE addressed.
CREATE OR REPLACE FUNCTION "sexton"."track_function"()
RETURNS trigger
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $sexton$
#variable_conflict use_variable
BEGIN
    INSERT INTO "public".loose_foreign_keys_deleted_records
        (fully_qualified_table_name, primary_key_value)
    SELECT TG_ARGV[0], gone."key_column"
    FROM sexton_deleted AS gone
    WHERE gone."key_column" IS NOT NULL;

    RETURN NULL;
END;
$sexton$;
