-- Returns the number of the set that a batch keeps, once it is sure that the table has the columns that the batch knows of: the statement's locks
-- keep them so. Raises SX005 where it has others by now, and SX006 where a row is too large to be kept and the deletion has to wait for that.
-- With ahead, rows of that leaf were read before they are deleted: SX008 says that not all of them may go, or that some are too large for it.
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
        RAISE EXCEPTION 'the columns of % have changed, so that its rows cannot be kept', of_table::pg_catalog.regclass
            USING ERRCODE = 'SX005', HINT = 'The next run knows them.';
    END IF;

    IF ahead <> 0 AND (left_out > 0 OR EXISTS (
        SELECT
        FROM pg_catalog.pg_class AS leaf
        WHERE leaf.oid = ahead AND (leaf.relkind <> 'r' OR leaf.relrowsecurity OR leaf.relhasrules OR EXISTS (
            -- For each row, before it is deleted.
            SELECT FROM pg_catalog.pg_trigger AS hook WHERE hook.tgrelid = ahead AND NOT hook.tgisinternal AND hook.tgtype & 11::smallint = 11
        ))
    )) THEN
        RAISE EXCEPTION 'rows of % have to be kept one by one', of_table::pg_catalog.regclass USING ERRCODE = 'SX008';
    END IF;

    IF waits AND left_out > 0 THEN
        RAISE EXCEPTION '% of the rows to be deleted from % cannot be kept', left_out, of_table::pg_catalog.regclass
            USING ERRCODE = 'SX006', HINT = 'Raise loose_foreign_keys.undo.max_row, or set large_rows to left_out.';
    END IF;

    RETURN pg_catalog.nextval('"sexton".undo_ids');
END;
$sexton$;

COMMENT ON FUNCTION "sexton".undo_set(oid, bigint, text[], bigint, boolean, oid) IS 'Sexton: the number of a set of kept rows';
