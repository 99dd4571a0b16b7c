-- Asks for a group's deletion on a user's behalf: marks the group and renames it, so that its name and path are free, in
-- the caller's transaction. A group whose longer name or path the table would refuse keeps both. Returns true where it has done so, and false where the group is scheduled already, or is
-- being destroyed with one above it; then nothing changes but whose request it is, where the user who made it may not remove
-- the group any more.
--
-- Raises SX020 for a group that does not exist and SX021 for a user who may not remove it.
--
-- It may be called for thousands of groups in one transaction, with an empty table of schedules. A statement that was planned
-- for that would read the whole table for each of them, so it is planned each time. A planner setting would reach the
-- application's triggers.
CREATE OR REPLACE FUNCTION "sexton".schedule_group_deletion(group_id bigint, user_id bigint)
RETURNS boolean
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET row_security = off
AS $sexton$
DECLARE
    today CONSTANT date := (pg_catalog.statement_timestamp() AT TIME ZONE 'UTC')::pg_catalog.date;
    changed bigint;
    suffix text := '-deletion_scheduled-' || schedule_group_deletion.group_id;
    attempts CONSTANT integer := 10;
    own_name text;
    own_path text;
    marked date;
    tail text := '';
BEGIN
    PERFORM "sexton".open_group_door('schedule the deletion of group', schedule_group_deletion.group_id, schedule_group_deletion.user_id);

    SELECT groups.name, groups.path, groups.marked_for_deletion_on INTO own_name, own_path, marked
    FROM "public".groups
    WHERE groups.id = schedule_group_deletion.group_id;

    IF "sexton".group_destruction_above(schedule_group_deletion.group_id) IS NOT NULL THEN
        RETURN false;
    ELSIF marked IS NOT NULL AND EXISTS (
        SELECT FROM "public".group_deletion_schedules AS schedule WHERE schedule.group_id = schedule_group_deletion.group_id
    ) THEN
        -- Or the group would be restored in the end, although somebody who may remove it has asked for its deletion.
        UPDATE "public".group_deletion_schedules AS schedule
        SET user_id = schedule_group_deletion.user_id
        WHERE schedule.group_id = schedule_group_deletion.group_id
          AND "sexton".may_remove_group(schedule.user_id, schedule.group_id) IS NOT TRUE;

        RETURN false;
    END IF;

    FOR attempt IN 1..attempts LOOP
        BEGIN
            UPDATE "public".groups
            SET marked_for_deletion_on = today,
                name = CASE WHEN pg_catalog.right(own_name, pg_catalog.length(suffix)) = suffix THEN own_name ELSE own_name || tail || suffix END,
                path = CASE WHEN pg_catalog.right(own_path, pg_catalog.length(suffix)) = suffix THEN own_path ELSE own_path || tail || suffix END
            WHERE groups.id = schedule_group_deletion.group_id;

            EXIT;
        EXCEPTION
            WHEN unique_violation THEN
                -- Some other group was given that very path by hand.
                IF attempt = attempts THEN
                    RAISE;
                END IF;

                tail := '-' || "sexton".five_characters();
            WHEN string_data_right_truncation OR check_violation THEN
                -- No room for the suffix. A name that stays taken is no reason to keep the group.
                IF suffix = '' OR attempt = attempts THEN
                    RAISE;
                END IF;

                tail := '';
                suffix := '';
        END;
    END LOOP;

    -- The caller holds the group's lock, so there is no race between the two statements.
    EXECUTE 'UPDATE "public".group_deletion_schedules AS schedule SET user_id = $2, marked_for_deletion_on = $3 WHERE schedule.group_id = $1'
    USING schedule_group_deletion.group_id, schedule_group_deletion.user_id, today;
    GET DIAGNOSTICS changed = ROW_COUNT;

    IF changed = 0 THEN
        INSERT INTO "public".group_deletion_schedules (group_id, user_id, marked_for_deletion_on)
        VALUES (schedule_group_deletion.group_id, schedule_group_deletion.user_id, today);
    END IF;

    INSERT INTO "sexton".events (kind, payload)
    SELECT 'group_deletion_scheduled', pg_catalog.jsonb_build_object(
        'group_id', groups.id, 'parent_id', groups.parent_id, 'path', groups.path,
        'user_id', schedule_group_deletion.user_id, 'marked_for_deletion_on', today)
    FROM "public".groups
    WHERE groups.id = schedule_group_deletion.group_id;

    RETURN true;
END;
$sexton$;

COMMENT ON FUNCTION "sexton".schedule_group_deletion(bigint, bigint) IS 'Sexton: marks a group for its deletion';
