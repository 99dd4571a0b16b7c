-- Who marked acme does not own it any more when the period is over, so it gets its name back.
SELECT sexton.schedule_group_deletion(1, key_of(2));
UPDATE memberships SET role = 'member' WHERE organization_id = 1 AND account_id = key_of(2);
