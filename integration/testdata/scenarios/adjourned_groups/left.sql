SELECT 'begun', group_id FROM sexton.group_destructions UNION ALL SELECT 'failed', group_id FROM sexton.group_deletion_failures;
