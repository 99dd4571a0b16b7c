-- Removes the mark, schedule and suffixes of a locked group, and writes an event with the
-- reason. user_id is NULL if no user requested the restoration. If another group has
-- taken one of the former values, "-" and five random characters are appended to all
-- former values. A value that consists of the suffix alone is kept, because a group needs
-- a name.
CREATE OR REPLACE FUNCTION "sexton".restore_group(group_id "{group}", user_id "{user}", reason text)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $sexton$
#variable_conflict use_variable
DECLARE
    suffix CONSTANT text := '-deletion_scheduled-' || restore_group.group_id;
    attempts CONSTANT integer := 10;
    tail text := '';
    scheduled_by "{user}";
BEGIN
    SELECT schedule.user_id INTO scheduled_by
    FROM "public".group_deletion_schedules AS schedule
    WHERE schedule.group_id = restore_group.group_id;

    -- The paths are compared here, because the application may enforce unique paths
    -- without a unique index.
    IF {brings_schedules} AND EXISTS (
        SELECT FROM "public".groups AS own
        JOIN "public".groups AS other ON other.path = nullif(pg_catalog.left(own.path, -pg_catalog.length(suffix)), '')
            AND (other.parent_id = own.parent_id OR other.parent_id IS NULL AND own.parent_id IS NULL)
        WHERE own.id = restore_group.group_id AND pg_catalog.right(own.path, pg_catalog.length(suffix)) = suffix
    ) THEN
        tail := '-' || "sexton".five_characters();
    END IF;

    FOR attempt IN 1..attempts LOOP
        BEGIN
            UPDATE {table} AS own
            SET {marked_on} = NULL{clear_requester}{restored}
            WHERE {id} = restore_group.group_id;

            EXIT;
        EXCEPTION
            WHEN unique_violation THEN
                -- Another session has taken the value, or the application's index
                -- compares values in a different way.
                IF attempt = attempts THEN
                    RAISE;
                END IF;

                tail := '-' || "sexton".five_characters();
        END;
    END LOOP;

    IF {brings_schedules} THEN
        DELETE FROM "public".group_deletion_schedules AS schedule WHERE schedule.group_id = restore_group.group_id;
    END IF;

    DELETE FROM "sexton".group_deletion_failures AS failure WHERE failure.group_id = restore_group.group_id;

    INSERT INTO "sexton".events (kind, payload)
    SELECT 'group_restored', pg_catalog.jsonb_build_object(
        'group_id', groups.id, 'parent_id', groups.parent_id, 'path', groups.path,
        'user_id', restore_group.user_id, 'scheduled_by', scheduled_by, 'reason', restore_group.reason)
    FROM "public".groups
    WHERE groups.id = restore_group.group_id;
END;
$sexton$;

COMMENT ON FUNCTION "sexton".restore_group("{group}", "{user}", text) IS 'Sexton: removes the mark and the suffixes of a group';
