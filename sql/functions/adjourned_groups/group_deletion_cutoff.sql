-- Returns the date before which a mark makes a group due: today (UTC) minus the longest
-- period in the application's settings. Returns NULL if that period is not 1 to 90 days.
-- No group is due then, because there is no default period.
CREATE OR REPLACE FUNCTION "sexton".group_deletion_cutoff()
RETURNS date
LANGUAGE plpgsql
STABLE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET row_security = off
AS $sexton$
DECLARE
    period integer;
BEGIN
    IF "sexton".application_table('application_settings') THEN
        -- The query reads the column through to_jsonb, because the application's table
        -- may lack it.
        SELECT pg_catalog.max((pg_catalog.to_jsonb(settings) ->> 'deletion_adjourned_period')::integer) INTO period
        FROM "public".application_settings AS settings;
    END IF;

    IF period BETWEEN 1 AND 90 THEN
        RETURN (pg_catalog.statement_timestamp() AT TIME ZONE 'UTC')::pg_catalog.date - period;
    END IF;

    RETURN NULL;
END;
$sexton$;

COMMENT ON FUNCTION "sexton".group_deletion_cutoff() IS 'Sexton: the date before which a mark makes a group due';
