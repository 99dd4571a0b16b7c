-- Returns the value of a kept text, of the type of kind. Its settings are those of undo_text, so that every session reads what that function wrote.
CREATE OR REPLACE FUNCTION "sexton".undo_value(kept text, kind anyelement)
RETURNS anyelement
LANGUAGE plpgsql
STABLE
SET search_path = pg_catalog, pg_temp
SET DateStyle = 'ISO, YMD'
SET IntervalStyle = 'postgres'
SET TimeZone = 'UTC'
SET extra_float_digits = '1'
SET bytea_output = 'hex'
SET lc_monetary = 'C'
SET xmloption = 'content'
SET array_nulls = 'on'
SET standard_conforming_strings = 'on'
AS $sexton$
DECLARE
    made kind%TYPE := kept;
BEGIN
    RETURN made;
END;
$sexton$;

COMMENT ON FUNCTION "sexton".undo_value(text, anyelement) IS 'Sexton: the value of a kept text';
