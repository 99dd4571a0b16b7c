-- Converts a kept text to the type of kind. The function has the same settings as
-- undo_text, so that it reads the text in the form in which undo_text wrote it.
CREATE OR REPLACE FUNCTION "sexton".undo_value(kept text, kind anyelement)
RETURNS anyelement
LANGUAGE plpgsql
STABLE
SET search_path = pg_catalog, pg_temp
-- text settings
SET lc_monetary = 'C'
SET xmloption = 'content'
AS $sexton$
DECLARE
    made kind%TYPE := kept;
BEGIN
    RETURN made;
END;
$sexton$;

COMMENT ON FUNCTION "sexton".undo_value(text, anyelement) IS 'Sexton: the value of a kept text';
