-- Asks for a group's deletion on a user's behalf: marks the group and gives the columns that hold its name a suffix, so that their values
-- are free, in the caller's transaction. A group whose longer values the table would refuse keeps them. Returns true if it has done so, and
-- false if the group is scheduled already, or is being destroyed with one above it. Then nothing changes but whose request it is, if the
-- user who made it may not remove the group any more.
--
-- Raises SX020 for a group that does not exist and SX021 for a user who may not remove it.
--
-- It may be called for thousands of groups in one transaction, with an empty table of schedules. A statement that was planned
-- for that would read the whole table for each of them, so it is planned each time. A planner setting would reach the
-- application's triggers.
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
    scheduled boolean;
    changed bigint;
BEGIN
    PERFORM "sexton".open_group_door('schedule the deletion of group', schedule_group_deletion.group_id, requester);

    SELECT groups.marked_for_deletion_on IS NOT NULL INTO scheduled
    FROM "public".groups
    WHERE groups.id = schedule_group_deletion.group_id;

    IF "sexton".group_destruction_above(schedule_group_deletion.group_id) IS NOT NULL THEN
        RETURN false;
    ELSIF scheduled AND EXISTS (
        SELECT FROM "public".group_deletion_schedules AS schedule WHERE schedule.group_id = schedule_group_deletion.group_id
    ) THEN
        -- Or the group would be restored in the end, although somebody who may remove it has asked for its deletion.
        IF {brings_schedules} THEN
            UPDATE "public".group_deletion_schedules AS schedule
            SET user_id = requester
            WHERE schedule.group_id = schedule_group_deletion.group_id
              AND "sexton".may_remove_group(schedule.user_id, schedule.group_id) IS NOT TRUE;
        ELSE
            UPDATE {table} AS own
            SET {marked_on} = own.{marked_on}{set_requester}
            WHERE {id} = schedule_group_deletion.group_id AND "sexton".may_remove_group({by}, {id}) IS NOT TRUE;
        END IF;

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

    -- The caller holds the group's lock, so there is no race between the two statements.
    IF {brings_schedules} THEN
        EXECUTE 'UPDATE "public".group_deletion_schedules AS schedule SET user_id = $2, marked_for_deletion_on = $3 WHERE schedule.group_id = $1'
        USING schedule_group_deletion.group_id, requester, day;
        GET DIAGNOSTICS changed = ROW_COUNT;

        IF changed = 0 THEN
            INSERT INTO "public".group_deletion_schedules (group_id, user_id, marked_for_deletion_on)
            VALUES (schedule_group_deletion.group_id, requester, day);
        END IF;
    END IF;

    INSERT INTO "sexton".events (kind, payload)
    SELECT 'group_deletion_scheduled', pg_catalog.jsonb_build_object(
        'group_id', groups.id, 'parent_id', groups.parent_id, 'path', groups.path, 'user_id', requester, 'marked_for_deletion_on', day)
    FROM "public".groups
    WHERE groups.id = schedule_group_deletion.group_id;

    RETURN true;
END;
$sexton$;

COMMENT ON FUNCTION "sexton".schedule_group_deletion("{group}", "{user}") IS 'Sexton: marks a group for its deletion';
