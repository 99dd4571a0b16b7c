-- Makes the scheduled group $1 due.
WITH due AS (
    UPDATE "public".groups AS due SET marked_for_deletion_on = "sexton".group_deletion_cutoff() - 1
    WHERE due.id = $1 RETURNING due.id, due.marked_for_deletion_on
)
UPDATE "public".group_deletion_schedules AS schedule SET marked_for_deletion_on = due.marked_for_deletion_on
FROM due WHERE schedule.group_id = due.id
