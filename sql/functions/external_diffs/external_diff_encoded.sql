-- Reports whether a text is not UTF-8, which is possible only in a SQL_ASCII database.
-- (Texts cannot contain NUL; applications store such diffs as base64 with "binary" set.)
CREATE OR REPLACE FUNCTION "sexton".external_diff_encoded(diff text)
RETURNS boolean
LANGUAGE plpgsql
STABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $sexton$
BEGIN
    IF diff IS NULL OR pg_catalog.getdatabaseencoding() <> 'SQL_ASCII' THEN
        RETURN false;
    END IF;

    PERFORM pg_catalog.convert_from(pg_catalog.convert_to(diff, 'SQL_ASCII'), 'UTF8');
    RETURN false;
EXCEPTION
    WHEN character_not_in_repertoire THEN
        RETURN true;
END;
$sexton$;

COMMENT ON FUNCTION "sexton".external_diff_encoded(text) IS 'Sexton: reports whether a text is not UTF-8 and is stored as base64';
