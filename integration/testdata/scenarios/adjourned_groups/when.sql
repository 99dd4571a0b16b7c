-- These statements end the waiting period of all scheduled deletions.
UPDATE groups SET marked_for_deletion_on = marked_for_deletion_on - 31;
UPDATE group_deletion_schedules SET marked_for_deletion_on = marked_for_deletion_on - 31;
