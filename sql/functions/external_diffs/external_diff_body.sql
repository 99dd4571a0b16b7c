-- Returns the stored bytes of a text: UTF-8, or base64 without line breaks if the text is
-- not UTF-8.
CREATE OR REPLACE FUNCTION "sexton".external_diff_body(diff text)
RETURNS bytea
LANGUAGE plpgsql
STABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $sexton$
BEGIN
    IF pg_catalog.getdatabaseencoding() <> 'SQL_ASCII' THEN
        RETURN pg_catalog.convert_to(diff, 'UTF8');
    ELSIF "sexton".external_diff_encoded(diff) THEN
        RETURN pg_catalog.convert_to(pg_catalog.translate(pg_catalog.encode(pg_catalog.convert_to(diff, 'SQL_ASCII'), 'base64'), E'\n', ''), 'SQL_ASCII');
    END IF;

    RETURN pg_catalog.convert_to(diff, 'SQL_ASCII');
END;
$sexton$;

COMMENT ON FUNCTION "sexton".external_diff_body(text) IS 'Sexton: the stored bytes of a text';
