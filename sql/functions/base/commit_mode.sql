-- Returns the value of synchronous_commit for a transaction. If durable is set, the
-- commit waits until its WAL is on disk. A worker's session has synchronous_commit off,
-- so the setting sexton.synchronous_commit has the database's value. Other sessions use
-- their own value.
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

COMMENT ON FUNCTION "sexton".commit_mode(boolean) IS 'Sexton: returns the value of synchronous_commit for a transaction';
