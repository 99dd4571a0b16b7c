-- The rule that counts. It is the application's to replace (CREATE OR REPLACE FUNCTION) and may call Sexton's own. No
-- upgrade ever writes it again, so that a replacement outlives every upgrade, while the rule above gets better.
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
            'Sexton: who may remove a group; replace it to have a rule of your own';
    END IF;
END;
$sexton$;
