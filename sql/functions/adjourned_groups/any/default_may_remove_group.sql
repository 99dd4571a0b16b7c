-- Reports whether a user may remove a group by the application's configured function.
-- Returns true if no function is configured.
CREATE OR REPLACE FUNCTION "sexton".default_may_remove_group(user_id "{user}", group_id "{group}")
RETURNS boolean
LANGUAGE plpgsql
STABLE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET row_security = off
AS $sexton$
BEGIN{group_rule}
    RETURN true;
END;
$sexton$;

COMMENT ON FUNCTION "sexton".default_may_remove_group("{user}", "{group}") IS 'Sexton: default rule for who may remove a group';
