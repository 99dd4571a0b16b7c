-- Schedules a group's deletion on behalf of a user, in the caller's transaction. It marks
-- the group, and appends a suffix to the columns with its name, so that the former values
-- can be used again. If the table refuses the longer values, the group keeps its name.
-- Returns false if the group is scheduled already, or if it or a group above it is being
-- destroyed. If the user who scheduled the group may no longer remove it, user_id
-- replaces that user.
--
-- Raises SX020 if the group does not exist and SX021 if the user may not remove it.
--
-- A transaction may call this function for thousands of groups and begin with an empty
-- table of schedules. A cached plan for an empty table would scan the table for each
-- group, so the UPDATE of schedules is planned each time. A planner setting instead would
-- also apply to the application's triggers.
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
        -- Without this UPDATE, the group would be restored when it is due, although a
        -- permitted user has requested its deletion.
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
                -- Another group already has this value. The next attempt appends random
                -- characters.
                IF attempt = attempts THEN
                    RAISE;
                END IF;

                tail := '-' || "sexton".five_characters();
            WHEN string_data_right_truncation OR check_violation THEN
                -- The table refuses the longer value. The group keeps its name, because
                -- its deletion matters more than making the name available.
                IF suffix = '' OR attempt = attempts THEN
                    RAISE;
                END IF;

                tail := '';
                suffix := '';
        END;
    END LOOP;

    -- This transaction has locked the group, so the two statements cannot race with
    -- another session.
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

COMMENT ON FUNCTION "sexton".schedule_group_deletion("{group}", "{user}") IS 'Sexton: schedules the deletion of a group';
