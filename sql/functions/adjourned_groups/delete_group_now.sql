-- Deletes a group without waiting for the period: schedules the group if necessary, sets
-- its mark to a date that makes it due, and enqueues its destruction, in the caller's
-- transaction. Returns false if the group was due or its destruction had begun before.
--
-- Raises SX020 if the group does not exist, SX021 if the user may not remove it, and
-- SX023 if no period is set.
CREATE OR REPLACE FUNCTION "sexton".delete_group_now(group_id "{group}", user_id "{user}")
RETURNS boolean
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET row_security = off
AS $sexton$
#variable_conflict use_variable
DECLARE
    day CONSTANT date := "sexton".group_deletion_cutoff() - 1;
    requester CONSTANT "{user}" := delete_group_now.user_id;
BEGIN
    PERFORM "sexton".schedule_group_deletion(delete_group_now.group_id, requester);

    IF day IS NULL THEN
        RAISE EXCEPTION USING
            ERRCODE = 'SX023',
            MESSAGE = pg_catalog.format('delete group %s now: the application''s settings have no period of 1 to 90 days', delete_group_now.group_id),
            HINT = pg_catalog.format('Set deletion_adjourned_period in %s.', '"public".application_settings');
    ELSIF "sexton".group_destruction_above(delete_group_now.group_id) IS NOT NULL THEN
        RETURN false;
    END IF;

    UPDATE {table} AS own
    SET {set_mark}{set_requester}
    WHERE {id} = delete_group_now.group_id AND {marked} > day;

    IF NOT FOUND THEN
        RETURN false;
    END IF;

    IF {brings_schedules} THEN
        UPDATE "public".group_deletion_schedules AS schedule
        SET user_id = requester, marked_for_deletion_on = day
        WHERE schedule.group_id = delete_group_now.group_id;
    END IF;

    DELETE FROM "sexton".group_deletion_failures AS failure WHERE failure.group_id = delete_group_now.group_id;

    INSERT INTO "sexton".events (kind, payload) VALUES (
        'group_deletion_hastened', pg_catalog.jsonb_build_object('group_id', delete_group_now.group_id, 'user_id', requester));

    -- If enqueue does not accept the kind group_destroy, the group is left to the daily
    -- job for due groups.
    IF EXISTS (SELECT FROM "sexton".job_kinds WHERE job_kinds.kind = 'group_destroy') THEN
        PERFORM "sexton".enqueue('group_destroy', pg_catalog.jsonb_build_object(
            'group_id', delete_group_now.group_id, 'user_id', coalesce(pg_catalog.to_jsonb(requester), {nobody})));
    END IF;

    RETURN true;
END;
$sexton$;

COMMENT ON FUNCTION "sexton".delete_group_now("{group}", "{user}") IS 'Sexton: deletes a group without waiting for the period';
