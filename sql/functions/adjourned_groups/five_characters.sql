-- Returns five random letters and digits. Callers append them to a path that another
-- group has taken.
CREATE OR REPLACE FUNCTION "sexton".five_characters()
RETURNS text
LANGUAGE sql
VOLATILE
SET search_path = pg_catalog, pg_temp
AS $sexton$
    SELECT pg_catalog.string_agg(pg_catalog.substr('abcdefghijklmnopqrstuvwxyz0123456789', 1 + pg_catalog.floor(pg_catalog.random() * 36)::integer, 1), '')
    FROM pg_catalog.generate_series(1, 5);
$sexton$;

COMMENT ON FUNCTION "sexton".five_characters() IS 'Sexton: random letters and digits that make a taken path unique';
