-- Locks a group for one of the doors, and refuses on behalf of all: SX020 for a group that does not exist, SX021 for a
-- user who may not remove it.
CREATE OR REPLACE FUNCTION "sexton".open_group_door(door text, group_id "{group}", user_id "{user}")
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $sexton$
BEGIN
    -- As strong as the renaming needs it: a weaker lock could deadlock when it is raised.
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

COMMENT ON FUNCTION "sexton".open_group_door(text, "{group}", "{user}") IS 'Sexton: locks a group and checks who asks';
