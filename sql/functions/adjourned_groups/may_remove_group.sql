-- Creates the function may_remove_group, which all other functions call. The application
-- may replace it with CREATE OR REPLACE FUNCTION, and its replacement may call the
-- default rule. Upgrades change the default rule but never this function, so that a
-- replacement is kept.
DO $sexton$
BEGIN
    IF pg_catalog.to_regprocedure('"sexton".may_remove_group("{user}", "{group}")') IS NULL THEN
        CREATE FUNCTION "sexton".may_remove_group(user_id "{user}", group_id "{group}")
        RETURNS boolean
        LANGUAGE sql
        STABLE
        AS 'SELECT "sexton".default_may_remove_group(user_id, group_id)';

        REVOKE ALL ON FUNCTION "sexton".may_remove_group("{user}", "{group}") FROM PUBLIC;

        COMMENT ON FUNCTION "sexton".may_remove_group("{user}", "{group}") IS
            'Sexton: who may remove a group; replace this function to use your own rule';
    END IF;
END;
$sexton$;
