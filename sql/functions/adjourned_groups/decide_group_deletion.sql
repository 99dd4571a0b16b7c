-- Enqueues the destruction of one due group for run_at if the user who scheduled it may
-- still remove it, and restores the group otherwise. The caller runs this function in a
-- transaction of its own. The outcomes are:
--
--   enqueued     a group_destroy job was inserted
--   waiting      the group already has a group_destroy job
--   restored     the group was restored; the reason is not_permitted or user_missing
--   undue        the group was deleted or restored, or lost its schedule, in the meantime
CREATE OR REPLACE FUNCTION "sexton".decide_group_deletion(
    group_id "{group}", run_at timestamptz,
    OUT outcome text, OUT user_id "{user}", OUT path text, OUT reason text
)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET row_security = off
AS $sexton$
DECLARE
    begun boolean;
    job_id bigint;
BEGIN
    outcome := 'undue';

    -- The lock serializes this function with the functions that schedule, cancel and
    -- hasten a deletion.
    SELECT groups.path INTO path
    FROM "public".groups
    WHERE groups.id = decide_group_deletion.group_id
    FOR UPDATE;

    -- A destruction that has begun continues even if the mark, the schedule or the period
    -- is missing, or if the requester may no longer remove the group. A partly deleted
    -- group is of no use.
    SELECT coalesce(schedule.user_id, destruction.user_id), destruction.group_id IS NOT NULL INTO user_id, begun
    FROM "public".groups
    LEFT JOIN "public".group_deletion_schedules AS schedule ON schedule.group_id = groups.id
    LEFT JOIN "sexton".group_destructions AS destruction ON destruction.group_id = groups.id
    WHERE groups.id = decide_group_deletion.group_id
      AND (destruction.group_id IS NOT NULL
        OR schedule.group_id IS NOT NULL AND groups.marked_for_deletion_on < "sexton".group_deletion_cutoff());

    IF NOT FOUND THEN
        RETURN;
    END IF;

    -- A job on behalf of another user needs no check: groups with such a job are not
    -- passed to this function.
    IF "sexton".group_destroy_job(decide_group_deletion.group_id, user_id) IS NOT NULL THEN
        outcome := 'waiting';
    ELSIF begun OR "sexton".may_remove_group(user_id, decide_group_deletion.group_id) THEN
        job_id := "sexton".enqueue('group_destroy',
            pg_catalog.jsonb_build_object('group_id', decide_group_deletion.group_id, 'user_id', coalesce(pg_catalog.to_jsonb(user_id), {nobody})), run_at);
        -- The latency of the deletion is measured from the day after the period.
        UPDATE "sexton".river_job AS job
        SET metadata = job.metadata || pg_catalog.jsonb_build_object('due_at', (groups.marked_for_deletion_on + 1
            + ((pg_catalog.statement_timestamp() AT TIME ZONE 'UTC')::pg_catalog.date - "sexton".group_deletion_cutoff()))::timestamp AT TIME ZONE 'UTC')
        FROM "public".groups
        WHERE job.id = job_id AND groups.id = decide_group_deletion.group_id AND groups.marked_for_deletion_on < "sexton".group_deletion_cutoff();

        outcome := 'enqueued';
    ELSE
        reason := CASE
            WHEN {user_exists} THEN 'not_permitted'
            ELSE 'user_missing'
        END;
        PERFORM "sexton".restore_group(decide_group_deletion.group_id, NULL, reason);
        outcome := 'restored';
    END IF;
END;
$sexton$;

COMMENT ON FUNCTION "sexton".decide_group_deletion("{group}", timestamp with time zone) IS 'Sexton: enqueues the destruction of a due group, or restores the group';
