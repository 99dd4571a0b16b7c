-- Removes what is recorded of groups that are not to be deleted any more.
DELETE FROM "sexton".group_deletion_failures AS failure
WHERE NOT EXISTS (
    SELECT FROM "public".group_deletion_schedules AS schedule WHERE schedule.group_id = failure.group_id
)
