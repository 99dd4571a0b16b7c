-- Returns the backlog of this database, for status, metrics and other readers.
--
-- Every component with a deletion table has a function backlog_of_COMPONENT() with the
-- same columns, which is the only definition of its backlog. backlog_rows finds these
-- functions by their names, so it does not depend on the components. It calls only
-- functions of its own owner.
CREATE OR REPLACE FUNCTION "sexton".backlog_rows()
RETURNS TABLE (
    deletion_table text,
    pending bigint,
    capped boolean,
    oldest_age_seconds double precision,
    deferred bigint,
    deferred_until timestamptz,
    deferred_reason text
)
LANGUAGE plpgsql
STABLE
SET search_path = pg_catalog, pg_temp
AS $sexton$
DECLARE
    part text;
BEGIN
    FOR part IN
        SELECT pg_catalog.format('%I.%I', namespace.nspname, proc.proname)
        FROM pg_catalog.pg_proc AS own
        JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = own.pronamespace
        JOIN pg_catalog.pg_proc AS proc ON proc.pronamespace = own.pronamespace AND proc.proowner = own.proowner
        WHERE own.oid = '"sexton".backlog_rows()'::pg_catalog.regprocedure
          AND pg_catalog.starts_with(proc.proname, 'backlog_of_')
          AND proc.pronargs = 0
        ORDER BY proc.proname
    LOOP
        RETURN QUERY EXECUTE pg_catalog.format(
            'SELECT b.deletion_table, b.pending, b.capped, b.oldest_age_seconds, b.deferred, b.deferred_until, b.deferred_reason FROM %s() AS b',
            part);
    END LOOP;
END;
$sexton$;

COMMENT ON FUNCTION "sexton".backlog_rows() IS 'Sexton: pending rows in the deletion tables of this database';

CREATE OR REPLACE VIEW "sexton".backlog AS
SELECT
    part.deletion_table,
    -- pending counts the pending rows, including deferred rows, up to 10,000. capped
    -- reports that there are more.
    part.pending,
    part.capped,
    part.oldest_age_seconds,
    -- deferred counts the deferred rows. deferred_until is the time of the first of them,
    -- and deferred_reason summarizes their errors.
    part.deferred,
    part.deferred_until,
    part.deferred_reason
FROM "sexton".backlog_rows() AS part;

COMMENT ON VIEW "sexton".backlog IS 'Sexton: pending rows in the deletion tables of this database; cheap for any number of rows';
