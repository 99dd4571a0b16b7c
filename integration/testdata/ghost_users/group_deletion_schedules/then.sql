SELECT group_id, who(user_id) FROM group_deletion_schedules ORDER BY group_id;

-- soft and hard:
--   2 | ben
