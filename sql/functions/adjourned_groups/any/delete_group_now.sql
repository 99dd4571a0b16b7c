-- Asks for a group's deletion without the period: marks the group if it is not marked, moves its mark back to where the period is over, and
-- has its destruction begin, in the caller's transaction. Returns true if it has done so, and false if the group was due, or its
-- destruction had begun, before.
--
-- Raises SX020 for a group that does not exist, SX021 for a user who may not remove it.
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

    IF "sexton".group_destruction_above(delete_group_now.group_id) IS NOT NULL THEN
        RETURN false;
    END IF;

    UPDATE {table} AS own
    SET {set_mark}{set_requester}
    WHERE {id} = delete_group_now.group_id AND {marked} > day;

    IF NOT FOUND THEN
        RETURN false;
    END IF;

    DELETE FROM "sexton".group_deletion_failures AS failure WHERE failure.group_id = delete_group_now.group_id;

    INSERT INTO "sexton".events (kind, payload) VALUES (
        'group_deletion_hastened', pg_catalog.jsonb_build_object('group_id', delete_group_now.group_id, 'user_id', requester));

    -- Without the kind, the daily job takes the group up.
    IF EXISTS (SELECT FROM "sexton".job_kinds WHERE job_kinds.kind = 'group_destroy') THEN
        PERFORM "sexton".enqueue('group_destroy', pg_catalog.jsonb_build_object(
            'group_id', delete_group_now.group_id, 'user_id', coalesce(pg_catalog.to_jsonb(requester), {nobody})));
    END IF;

    RETURN true;
END;
$sexton$;

COMMENT ON FUNCTION "sexton".delete_group_now("{group}", "{user}") IS 'Sexton: has a group destroyed without waiting for its period';
