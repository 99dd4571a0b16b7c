-- Adds the defaults of a kind to a job's arguments, checks the arguments, and returns
-- them as Go's encoding/json writes them, sorted by name. Raises 22023 with all errors.
CREATE OR REPLACE FUNCTION "sexton".job_args(kind text, types jsonb, defaults jsonb, args jsonb)
RETURNS text
LANGUAGE plpgsql
STABLE
SET search_path = pg_catalog, pg_temp
AS $sexton$
DECLARE
    complaints text;
    members text;
BEGIN
    IF pg_catalog.jsonb_typeof(args) IS DISTINCT FROM 'object' THEN
        complaints := pg_catalog.format('the arguments must be a JSON object, not %s', coalesce(pg_catalog.jsonb_typeof(args), 'NULL'));
    ELSE
        SELECT
            pg_catalog.string_agg(
                CASE
                    WHEN wanted.type IS NULL THEN pg_catalog.format('there is no argument "%s"', name)
                    WHEN given.value IS NULL THEN pg_catalog.format('argument "%s" is missing', name)
                    WHEN encoded.value IS NULL THEN pg_catalog.format('argument "%s" must be %s, not %s', name, wanted.type,
                        CASE pg_catalog.jsonb_typeof(given.value) WHEN 'number' THEN pg_catalog.left(given.value::pg_catalog.text, 40) ELSE pg_catalog.jsonb_typeof(given.value) END)
                END,
                '; ' ORDER BY name COLLATE "C"),
            pg_catalog.string_agg(pg_catalog.to_json(name)::pg_catalog.text || ':' || encoded.value, ',' ORDER BY name COLLATE "C")
        INTO complaints, members
        FROM pg_catalog.jsonb_each_text(types) AS wanted (name, type)
        FULL JOIN pg_catalog.jsonb_each(defaults || args) AS given (name, value) USING (name)
        CROSS JOIN LATERAL (SELECT "sexton".job_argument(wanted.type, given.value)) AS encoded (value);
    END IF;

    IF complaints IS NOT NULL THEN
        RAISE EXCEPTION USING
            ERRCODE = '22023',
            MESSAGE = pg_catalog.format('enqueue %s: %s', kind, complaints),
            HINT = coalesce(
                (SELECT 'Arguments: ' || pg_catalog.string_agg(
                    pg_catalog.format('%s %s', a.name, a.type) || coalesce(' (default ' || (defaults -> a.name)::pg_catalog.text || ')', ''),
                    ', ' ORDER BY a.name COLLATE "C") || '.'
                 FROM pg_catalog.jsonb_each_text(types) AS a (name, type)),
                'This kind has no arguments.');
    END IF;

    RETURN '{' || coalesce(members, '') || '}';
END;
$sexton$;

COMMENT ON FUNCTION "sexton".job_args(text, jsonb, jsonb, jsonb) IS 'Sexton: checks and encodes the arguments of a job';
