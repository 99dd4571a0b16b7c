-- Returns one argument as Go's encoding/json writes it, or NULL if the value does not
-- have the type. A number without a fraction is a bigint in any notation, as in JSON. A
-- key is a bigint or a text.
CREATE OR REPLACE FUNCTION "sexton".job_argument(type text, value jsonb)
RETURNS text
LANGUAGE plpgsql
STABLE
SET search_path = pg_catalog, pg_temp
AS $sexton$
DECLARE
    encoded text := value::pg_catalog.text;
BEGIN
    IF type = 'key' THEN
        type := CASE pg_catalog.jsonb_typeof(value) WHEN 'number' THEN 'bigint' ELSE 'text' END;
    END IF;

    CASE type || ' ' || pg_catalog.jsonb_typeof(value)
    WHEN 'text string' THEN
        -- Postgres and Go escape strings in the same way, except for these characters,
        -- which Go also escapes for HTML and JavaScript. E'' does not depend on
        -- standard_conforming_strings.
        encoded := pg_catalog.replace(pg_catalog.replace(pg_catalog.replace(encoded, '<', E'\\u003c'), '>', E'\\u003e'), '&', E'\\u0026');

        IF pg_catalog.getdatabaseencoding() = 'UTF8' THEN
            -- Only UTF-8 has the line separators U+2028 and U+2029. In other encodings
            -- chr raises an error for them.
            encoded := pg_catalog.replace(pg_catalog.replace(encoded, pg_catalog.chr(8232), E'\\u2028'), pg_catalog.chr(8233), E'\\u2029');
        END IF;

        RETURN encoded;
    WHEN 'bigint number' THEN
        IF pg_catalog.trunc(value::numeric) = value::numeric
            AND value::numeric BETWEEN -9223372036854775808 AND 9223372036854775807
        THEN
            RETURN value::bigint::pg_catalog.text;
        END IF;
    WHEN 'boolean boolean' THEN
        RETURN encoded;
    ELSE
        NULL;
    END CASE;

    RETURN NULL;
END;
$sexton$;

COMMENT ON FUNCTION "sexton".job_argument(text, jsonb) IS 'Sexton: encodes one argument of a job';
