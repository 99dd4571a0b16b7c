-- Keeps rows that a native foreign key deletes or changes below rows that are kept. The
-- trigger's table need not be tracked. The trigger fires only within another trigger,
-- such as the trigger of a foreign key, so rows that the application deletes directly are
-- not kept.
CREATE OR REPLACE FUNCTION "sexton"."track_function"()
RETURNS trigger
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET quote_all_identifiers = 'off'
AS $sexton$
#variable_conflict use_variable
DECLARE
    root CONSTANT pg_catalog.regclass := coalesce(pg_catalog.pg_partition_root(TG_RELID), TG_RELID::pg_catalog.regclass);
    present CONSTANT pg_catalog.text := root::pg_catalog.text;
    -- undo_declare
BEGIN
    IF NOT EXISTS (SELECT FROM sexton_deleted) THEN
        RETURN NULL;
    END IF;

    -- undo_keep

    RETURN NULL;
END;
$sexton$;
