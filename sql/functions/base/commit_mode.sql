-- Returns synchronous_commit for a commit that must reach the disk, or need not. A worker's session has synchronous_commit off, so the database's
-- setting is in sexton.synchronous_commit. Other sessions use their own setting.
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

COMMENT ON FUNCTION "sexton".commit_mode(boolean) IS 'Sexton: returns synchronous_commit for a durable or another transaction';
