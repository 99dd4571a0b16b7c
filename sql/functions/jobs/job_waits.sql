-- Reports whether an equal job waits or runs. The arguments must have the form that
-- enqueue compares: compact JSON, sorted by name.
CREATE OR REPLACE FUNCTION "sexton".job_waits(kind text, encoded text)
RETURNS boolean
LANGUAGE plpgsql
STABLE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $sexton$
DECLARE
    key CONSTANT bytea := pg_catalog.sha256(pg_catalog.convert_to('&kind=' || kind || '&args=' || encoded, 'UTF8'));
BEGIN
    RETURN EXISTS (
        SELECT FROM "sexton".river_job AS j
        WHERE j.unique_key = key
            AND j.unique_states IS NOT NULL
            AND "sexton".river_job_state_in_bitmask(j.unique_states, j.state)
    );
END;
$sexton$;

COMMENT ON FUNCTION "sexton".job_waits(text, text) IS 'Sexton: reports whether an equal job waits or runs';
