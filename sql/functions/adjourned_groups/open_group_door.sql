-- Locks a group for one of the functions that an application calls. Raises SX020 if the
-- group does not exist and SX021 if the user may not remove it. door is the start of the
-- message.
CREATE OR REPLACE FUNCTION "sexton".open_group_door(door text, group_id "{group}", user_id "{user}")
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $sexton$
BEGIN
    -- Renaming the group needs this lock mode. Upgrading a weaker lock could deadlock.
    PERFORM FROM "public".groups WHERE groups.id = open_group_door.group_id FOR UPDATE;

    IF NOT FOUND THEN
        RAISE EXCEPTION USING
            ERRCODE = 'SX020',
            MESSAGE = pg_catalog.format('%s: there is no group %s', door, coalesce(open_group_door.group_id::pg_catalog.text, 'NULL'));
    ELSIF "sexton".may_remove_group(open_group_door.user_id, open_group_door.group_id) IS NOT TRUE THEN
        RAISE EXCEPTION USING
            ERRCODE = 'SX021',
            MESSAGE = pg_catalog.format('%s %s: user %s may not remove it', door, open_group_door.group_id,
                coalesce(open_group_door.user_id::pg_catalog.text, 'NULL')),
            HINT = {who_may};
    END IF;
END;
$sexton$;

COMMENT ON FUNCTION "sexton".open_group_door(text, "{group}", "{user}") IS 'Sexton: locks a group and checks the user''s permission';
