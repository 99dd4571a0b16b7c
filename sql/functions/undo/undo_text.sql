-- The text form of an array, the same in all sessions, from which every value comes back as it was.
CREATE OR REPLACE FUNCTION "sexton".undo_text(given anyarray)
RETURNS text
LANGUAGE sql
STABLE
STRICT
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
AS $sexton$ SELECT pg_catalog.array_out(given)::pg_catalog.text $sexton$;

COMMENT ON FUNCTION "sexton".undo_text(anyarray) IS 'Sexton: the exact text form of an array';
