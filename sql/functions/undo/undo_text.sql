-- The text form of an array, the same in all sessions, from which every value comes back as it was.
CREATE OR REPLACE FUNCTION "sexton".undo_text(given anyarray)
RETURNS text
LANGUAGE sql
STABLE
STRICT
SET search_path = pg_catalog, pg_temp
-- text settings
SET lc_monetary = 'C'
SET xmloption = 'content'
AS $sexton$ SELECT pg_catalog.array_out(given)::pg_catalog.text $sexton$;

COMMENT ON FUNCTION "sexton".undo_text(anyarray) IS 'Sexton: the exact text form of an array';
