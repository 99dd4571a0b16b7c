-- Marks deletions as incomplete whose tombstones are removed by a worker that keeps no rows, such as one that still has an earlier configuration. A worker
-- that keeps rows sets sexton.keeps in the statement that removes tombstones.
CREATE OR REPLACE FUNCTION "sexton".undo_unkept()
RETURNS trigger
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $sexton$
BEGIN
    IF pg_catalog.current_setting('sexton.keeps', true) = 'on' THEN
        RETURN NULL;
    END IF;

    -- How many children each of the parents had is not known.
    INSERT INTO "sexton".undo (id, number, layout, rows, left_out, origins, via)
    SELECT pg_catalog.nextval('"sexton".undo_ids'), pg_catalog.nextval('"sexton".undo_ids'), parent.layout, 0, removed.parents, ARRAY[removed.origin], '{}'
    FROM (
        SELECT gone.origin, pg_catalog.count(*) AS parents
        FROM sexton_removed AS gone
        WHERE gone.origin IS NOT NULL AND gone.status = 1
        GROUP BY gone.origin
    ) AS removed
    CROSS JOIN LATERAL (
        SELECT known.layout
        FROM "sexton".undo AS known
        WHERE known.id = removed.origin
        ORDER BY known.number
        LIMIT 1
    ) AS parent;

    RETURN NULL;
END;
$sexton$;

COMMENT ON FUNCTION "sexton".undo_unkept() IS 'Sexton: marks deletions whose children were not kept';

DO $sexton$
BEGIN
    IF NOT EXISTS (
        SELECT FROM pg_catalog.pg_trigger
        WHERE tgrelid = '"public".loose_foreign_keys_deleted_records'::pg_catalog.regclass AND tgname = 'sexton_undo_unkept'
    ) THEN
        CREATE TRIGGER sexton_undo_unkept
        AFTER DELETE ON "public".loose_foreign_keys_deleted_records
        REFERENCING OLD TABLE AS sexton_removed
        FOR EACH STATEMENT
        EXECUTE FUNCTION "sexton".undo_unkept();
    END IF;
END;
$sexton$;
