-- The user who marked acme no longer owns it when the period ends, so acme is restored.
SELECT sexton.schedule_group_deletion(1, key_of(2));
UPDATE memberships SET role = 'member' WHERE organization_id = 1 AND account_id = key_of(2);
