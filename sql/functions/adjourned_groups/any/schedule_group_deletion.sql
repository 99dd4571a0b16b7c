-- Asks for a group's deletion on a user's behalf: marks the group and gives the configured columns a suffix, so that their values are
-- free, in the caller's transaction. A group whose longer values the table would refuse keeps them. Returns true if it has done so, and
-- false if the group is marked already, or is being destroyed with one above it. Then nothing changes but whose request it is, if the
-- user who made it may not remove the group any more.
--
-- Raises SX020 for a group that does not exist and SX021 for a user who may not remove it.
CREATE OR REPLACE FUNCTION "sexton".schedule_group_deletion(group_id "{group}", user_id "{user}")
RETURNS boolean
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET row_security = off
AS $sexton$
#variable_conflict use_variable
DECLARE
    day CONSTANT date := (pg_catalog.statement_timestamp() AT TIME ZONE 'UTC')::pg_catalog.date;
    suffix text := '-deletion_scheduled-' || schedule_group_deletion.group_id;
    attempts CONSTANT integer := 10;
    tail text := '';
    requester CONSTANT "{user}" := schedule_group_deletion.user_id;
BEGIN
    PERFORM "sexton".open_group_door('schedule the deletion of group', schedule_group_deletion.group_id, schedule_group_deletion.user_id);

    IF "sexton".group_destruction_above(schedule_group_deletion.group_id) IS NOT NULL THEN
        RETURN false;
    ELSIF EXISTS (SELECT FROM "public".group_deletion_schedules AS schedule WHERE schedule.group_id = schedule_group_deletion.group_id) THEN
        UPDATE {table} AS own
        SET {marked_on} = own.{marked_on}{set_requester}
        WHERE {id} = schedule_group_deletion.group_id AND "sexton".may_remove_group({by}, {id}) IS NOT TRUE;

        RETURN false;
    END IF;

    FOR attempt IN 1..attempts LOOP
        BEGIN
            UPDATE {table} AS own
            SET {marked_on} = day{set_requester}{suffixed}
            WHERE {id} = schedule_group_deletion.group_id;

            EXIT;
        EXCEPTION
            WHEN unique_violation THEN
                -- Some other group was given that very value by hand.
                IF attempt = attempts THEN
                    RAISE;
                END IF;

                tail := '-' || "sexton".five_characters();
            WHEN string_data_right_truncation OR check_violation THEN
                -- No room for the suffix. A value that stays taken is no reason to keep the group.
                IF suffix = '' OR attempt = attempts THEN
                    RAISE;
                END IF;

                tail := '';
                suffix := '';
        END;
    END LOOP;

    INSERT INTO "sexton".events (kind, payload)
    SELECT 'group_deletion_scheduled', pg_catalog.jsonb_build_object(
        'group_id', groups.id, 'parent_id', groups.parent_id, 'path', groups.path, 'user_id', requester, 'marked_for_deletion_on', day)
    FROM "public".groups
    WHERE groups.id = schedule_group_deletion.group_id;

    RETURN true;
END;
$sexton$;

COMMENT ON FUNCTION "sexton".schedule_group_deletion("{group}", "{user}") IS 'Sexton: marks a group for its deletion';
