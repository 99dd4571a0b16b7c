-- Reports whether the application has a table. The name alone says nothing: a view of that name runs its own code with the rights of
-- the function that reads it. Raises SX016 where the name means another relation than the one that the migration has found.
CREATE OR REPLACE FUNCTION "sexton".application_table(name text)
RETURNS boolean
LANGUAGE plpgsql
STABLE
SET search_path = pg_catalog, pg_temp
AS $sexton$
DECLARE
    known pg_catalog.oid := (
        SELECT noted.relation::pg_catalog.oid
        FROM "sexton".application_tables AS noted
        WHERE noted.name = application_table.name
    );
    found pg_catalog.oid := pg_catalog.to_regclass('"public".' || pg_catalog.quote_ident(name));
BEGIN
    IF known <> found THEN
        RAISE EXCEPTION USING
            ERRCODE = 'SX016',
            MESSAGE = pg_catalog.format('%s%I is no longer the table that "sexton migrate up" has found', '"public".', name),
            HINT = 'Run "sexton migrate up" again.';
    END IF;

    RETURN known IS NOT NULL AND found IS NOT NULL;
END;
$sexton$;

COMMENT ON FUNCTION "sexton".application_table(text) IS 'Sexton: whether the application has an optional table';
