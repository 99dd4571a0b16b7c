-- Handles a group's schedule that is deleted with the user who made it, by a native
-- cascade or by a batch of the user's deletion. Without this trigger the group would keep
-- its mark forever. If the initiator of the user's deletion may remove the group, the
-- trigger gives the schedule to the initiator. Otherwise it restores the group. It reads
-- the initiator from the queue of users. A plain DELETE of a user has no initiator.
CREATE OR REPLACE FUNCTION "sexton".group_schedule_lost()
RETURNS trigger
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET row_security = off
AS $sexton$
DECLARE
    initiator bigint;
    leaves boolean := false;
BEGIN
    IF "sexton".application_table('users_ghost_user_migrations') THEN
        SELECT job.initiator_user_id INTO initiator FROM "public".users_ghost_user_migrations AS job WHERE job.user_id = OLD.user_id;
        leaves := FOUND;
    END IF;

    -- The user still exists, so the application deleted the schedule for another reason.
    IF NOT leaves AND EXISTS (SELECT FROM "public".users WHERE users.id = OLD.user_id) THEN
        RETURN NULL;
    END IF;

    PERFORM FROM "public".groups WHERE groups.id = OLD.group_id AND groups.marked_for_deletion_on IS NOT NULL FOR UPDATE;

    -- A destruction that has begun needs no schedule. If a schedule exists again, the
    -- application has inserted it.
    IF NOT FOUND
        OR "sexton".group_destruction_above(OLD.group_id) IS NOT NULL
        OR EXISTS (SELECT FROM "public".group_deletion_schedules AS schedule WHERE schedule.group_id = OLD.group_id)
    THEN
        RETURN NULL;
    ELSIF initiator IS NULL OR "sexton".may_remove_group(initiator, OLD.group_id) IS NOT TRUE THEN
        PERFORM "sexton".restore_group(OLD.group_id, NULL, 'user_missing');
        RETURN NULL;
    END IF;

    INSERT INTO "public".group_deletion_schedules (group_id, user_id, marked_for_deletion_on)
    VALUES (OLD.group_id, initiator, OLD.marked_for_deletion_on);

    INSERT INTO "sexton".events (kind, payload) VALUES (
        'group_deletion_handed_over',
        pg_catalog.jsonb_build_object('group_id', OLD.group_id, 'user_id', initiator, 'scheduled_by', OLD.user_id));

    RETURN NULL;
END;
$sexton$;

COMMENT ON FUNCTION "sexton".group_schedule_lost() IS 'Sexton: transfers a group''s schedule, or restores the group, when the user who scheduled it is deleted';

-- The trigger is created only if it is missing, because replacing it would lock the
-- table.
DO $sexton$
BEGIN
    IF NOT EXISTS (
        SELECT FROM pg_catalog.pg_trigger
        WHERE tgrelid = '"public".group_deletion_schedules'::pg_catalog.regclass AND tgname = 'sexton_group_schedule_lost'
    ) THEN
        CREATE TRIGGER sexton_group_schedule_lost
        AFTER DELETE ON "public".group_deletion_schedules
        FOR EACH ROW
        EXECUTE FUNCTION "sexton".group_schedule_lost();
    END IF;
END;
$sexton$;
