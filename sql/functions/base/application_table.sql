-- Reports whether the application has a table. A name alone is not safe: a view of that
-- name would run its own code with the privileges of the calling function's owner. Raises
-- SX016 if the name belongs to another relation than the one that the last migration
-- recorded.
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
            MESSAGE = pg_catalog.format('%s%I is not the table that "sexton migrate up" recorded', '"public".', name),
            HINT = 'Run "sexton migrate up" again.';
    END IF;

    RETURN known IS NOT NULL AND found IS NOT NULL;
END;
$sexton$;

COMMENT ON FUNCTION "sexton".application_table(text) IS 'Sexton: reports whether the application has an optional table';
