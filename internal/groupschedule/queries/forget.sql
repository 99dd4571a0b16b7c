-- Deletes the failures of groups that are no longer scheduled.
DELETE FROM "sexton".group_deletion_failures AS failure
WHERE NOT EXISTS (
    SELECT FROM "public".group_deletion_schedules AS schedule WHERE schedule.group_id = failure.group_id
)
