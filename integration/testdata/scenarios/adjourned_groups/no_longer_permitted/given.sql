SELECT sexton.schedule_group_deletion(11, 2);
SELECT sexton.schedule_group_deletion(20, 1);
SELECT sexton.schedule_group_deletion(12, 1);
