-- Returns the text form of an array. The text is the same in all sessions, and undo_value
-- reads the exact values from it.
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
