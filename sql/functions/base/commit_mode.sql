-- synchronous_commit of a commit that must reach the disk: a worker's session, which does not wait by itself, keeps what it was configured with.
-- Others commit as they do.
CREATE OR REPLACE FUNCTION "sexton".commit_mode(durable boolean)
RETURNS text
LANGUAGE plpgsql
STABLE STRICT
SET search_path = pg_catalog, pg_temp
AS $sexton$
BEGIN
    RETURN CASE
        WHEN durable AND pg_catalog.current_setting('sexton.synchronous_commit', true) <> '' THEN pg_catalog.current_setting('sexton.synchronous_commit')
        ELSE pg_catalog.current_setting('synchronous_commit')
    END;
END;
$sexton$;

COMMENT ON FUNCTION "sexton".commit_mode(boolean) IS 'Sexton: synchronous_commit of a transaction that waits for the disk, or need not';
