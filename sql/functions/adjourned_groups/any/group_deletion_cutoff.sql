-- Returns the date before which a mark makes a group due: today (UTC) minus the
-- configured period.
CREATE OR REPLACE FUNCTION "sexton".group_deletion_cutoff()
RETURNS date
LANGUAGE sql
STABLE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $sexton$
    SELECT (pg_catalog.statement_timestamp() AT TIME ZONE 'UTC')::pg_catalog.date - {period}
$sexton$;

COMMENT ON FUNCTION "sexton".group_deletion_cutoff() IS 'Sexton: the date before which a mark makes a group due';
