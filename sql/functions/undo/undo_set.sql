-- Checks that a table still has the layout with the id known, and returns a new number
-- for the set of rows that a batch keeps. The locks of the batch's statement prevent a
-- later change of the columns.
--
-- left_out is the number of rows that are too large to be kept. ahead is the leaf whose
-- rows were read before they are deleted, or 0. Raises SX005 if the columns have changed,
-- and SX006 if waits is true and left_out is not 0. Raises SX008 for a leaf ahead if
-- left_out is not 0, or if a trigger, rule or policy may prevent the deletion of a row.
CREATE OR REPLACE FUNCTION "sexton".undo_set(of_table oid, known bigint, exclude text[], left_out bigint, waits boolean, ahead oid)
RETURNS bigint
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $sexton$
DECLARE
    present CONSTANT bigint := "sexton".undo_layout(of_table, exclude);
BEGIN
    IF present <> known AND NOT EXISTS (
        SELECT
        FROM "sexton".undo_layouts AS one
        JOIN "sexton".undo_layouts AS other ON other.relation = one.relation AND other.signature = one.signature
        WHERE one.id = present AND other.id = known
    ) THEN
        RAISE EXCEPTION 'the columns of % have changed, so its rows cannot be kept', of_table::pg_catalog.regclass
            USING ERRCODE = 'SX005', HINT = 'The next run reads the new columns.';
    END IF;

    IF ahead <> 0 AND (left_out > 0 OR EXISTS (
        SELECT
        FROM pg_catalog.pg_class AS leaf
        WHERE leaf.oid = ahead AND (leaf.relkind <> 'r' OR leaf.relrowsecurity OR leaf.relhasrules OR EXISTS (
            -- The bits select row triggers BEFORE DELETE.
            SELECT FROM pg_catalog.pg_trigger AS hook WHERE hook.tgrelid = ahead AND NOT hook.tgisinternal AND hook.tgtype & 11::smallint = 11
        ))
    )) THEN
        RAISE EXCEPTION 'rows of % must be kept one by one', of_table::pg_catalog.regclass USING ERRCODE = 'SX008';
    END IF;

    IF waits AND left_out > 0 THEN
        RAISE EXCEPTION '% of the rows to be deleted from % cannot be kept', left_out, of_table::pg_catalog.regclass
            USING ERRCODE = 'SX006', HINT = 'Increase loose_foreign_keys.undo.max_row, or set large_rows to left_out.';
    END IF;

    RETURN pg_catalog.nextval('"sexton".undo_ids');
END;
$sexton$;

COMMENT ON FUNCTION "sexton".undo_set(oid, bigint, text[], bigint, boolean, oid) IS 'Sexton: checks the columns of a table and returns the number of a set of kept rows';
