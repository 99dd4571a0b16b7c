-- Cancels a group's deletion on behalf of a user, in the caller's transaction. Returns
-- false if the group was not scheduled for deletion.
--
-- Raises SX020 if the group does not exist and SX021 if the user may not remove it.
-- Raises SX022 if the group's destruction has deleted or changed a row, or if the
-- destruction of a group above it has begun.
CREATE OR REPLACE FUNCTION "sexton".cancel_group_deletion(group_id "{group}", user_id "{user}")
RETURNS boolean
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET row_security = off
AS $sexton$
DECLARE
    begun "{group}";
    stopped boolean := false;
BEGIN
    PERFORM "sexton".open_group_door('cancel the deletion of group', cancel_group_deletion.group_id, cancel_group_deletion.user_id);

    begun := "sexton".group_destruction_above(cancel_group_deletion.group_id);

    IF begun = cancel_group_deletion.group_id THEN
        -- A running batch has locked the row of the destruction. The DELETE waits for the
        -- batch and then reads the values that the batch has written.
        DELETE FROM "sexton".group_destructions AS destruction
        WHERE destruction.group_id = begun AND destruction.done = 0 AND NOT destruction.touched;

        stopped := FOUND;

        IF stopped THEN
            begun := "sexton".group_destruction_above(cancel_group_deletion.group_id);
        END IF;
    END IF;

    IF begun IS NULL THEN
        -- The transaction's snapshot may be older than the row of the destruction, even
        -- after the wait for the group's lock. An INSERT of the same key detects that row
        -- anyway.
        BEGIN
            INSERT INTO "sexton".group_destructions (group_id, user_id)
            VALUES (cancel_group_deletion.group_id, cancel_group_deletion.user_id);

            DELETE FROM "sexton".group_destructions AS destruction WHERE destruction.group_id = cancel_group_deletion.group_id;
        EXCEPTION
            WHEN unique_violation THEN
                begun := cancel_group_deletion.group_id;
        END;
    END IF;

    IF begun IS NOT NULL THEN
        RAISE EXCEPTION USING
            ERRCODE = 'SX022',
            MESSAGE = CASE
                WHEN begun = cancel_group_deletion.group_id
                THEN pg_catalog.format('cancel the deletion of group %s: its destruction has begun', begun)
                ELSE pg_catalog.format('cancel the deletion of group %s: the destruction of its ancestor group %s has begun', cancel_group_deletion.group_id, begun)
            END,
            HINT = CASE
                WHEN begun = cancel_group_deletion.group_id THEN 'Deleted rows cannot be restored.'
                ELSE 'Cancel the deletion of that group, which is possible until its first row is deleted.'
            END;
    END IF;

    IF NOT stopped AND NOT EXISTS (
        SELECT FROM "public".groups WHERE groups.id = cancel_group_deletion.group_id AND groups.marked_for_deletion_on IS NOT NULL
    ) AND NOT EXISTS (
        SELECT FROM "public".group_deletion_schedules AS schedule WHERE schedule.group_id = cancel_group_deletion.group_id
    ) THEN
        RETURN false;
    END IF;

    PERFORM "sexton".restore_group(cancel_group_deletion.group_id, cancel_group_deletion.user_id, 'cancelled');

    RETURN true;
END;
$sexton$;

COMMENT ON FUNCTION "sexton".cancel_group_deletion("{group}", "{user}") IS 'Sexton: cancels the deletion of a group';
