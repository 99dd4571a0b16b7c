-- Asks for a group's deletion without the period: schedules the group if need be, moves its mark back to where the period is
-- over, and has its destruction begin, in the caller's transaction. Returns true where it has done so, and false where
-- the group was due, or its destruction had begun, before.
--
-- Raises SX020 for a group that does not exist, SX021 for a user who may not remove it, SX023 where no period is set.
CREATE OR REPLACE FUNCTION "sexton".delete_group_now(group_id bigint, user_id bigint)
RETURNS boolean
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET row_security = off
AS $sexton$
DECLARE
    due CONSTANT date := "sexton".group_deletion_cutoff() - 1;
BEGIN
    PERFORM "sexton".schedule_group_deletion(delete_group_now.group_id, delete_group_now.user_id);

    IF due IS NULL THEN
        RAISE EXCEPTION USING
            ERRCODE = 'SX023',
            MESSAGE = pg_catalog.format('delete group %s now: the application''s settings have no period of 1 to 90 days', delete_group_now.group_id),
            HINT = pg_catalog.format('Set deletion_adjourned_period in %s.', '"public".application_settings');
    ELSIF "sexton".group_destruction_above(delete_group_now.group_id) IS NOT NULL THEN
        RETURN false;
    END IF;

    UPDATE "public".groups
    SET marked_for_deletion_on = due
    WHERE groups.id = delete_group_now.group_id AND groups.marked_for_deletion_on > due;

    IF NOT FOUND THEN
        RETURN false;
    END IF;

    UPDATE "public".group_deletion_schedules AS schedule
    SET user_id = delete_group_now.user_id, marked_for_deletion_on = due
    WHERE schedule.group_id = delete_group_now.group_id;

    DELETE FROM "sexton".group_deletion_failures AS failure WHERE failure.group_id = delete_group_now.group_id;

    INSERT INTO "sexton".events (kind, payload) VALUES (
        'group_deletion_hastened',
        pg_catalog.jsonb_build_object('group_id', delete_group_now.group_id, 'user_id', delete_group_now.user_id));

    -- Without the kind, the daily job takes the group up.
    IF EXISTS (SELECT FROM "sexton".job_kinds WHERE job_kinds.kind = 'group_destroy') THEN
        PERFORM "sexton".enqueue('group_destroy',
            pg_catalog.jsonb_build_object('group_id', delete_group_now.group_id, 'user_id', delete_group_now.user_id));
    END IF;

    RETURN true;
END;
$sexton$;

COMMENT ON FUNCTION "sexton".delete_group_now(bigint, bigint) IS 'Sexton: has a group destroyed without waiting for its period';
