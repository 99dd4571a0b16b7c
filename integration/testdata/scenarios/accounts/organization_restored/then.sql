SELECT slug, deleted_on, deleted_by, (SELECT payload ->> 'reason' FROM sexton.events WHERE kind = 'group_restored') FROM organizations WHERE id = 1;

-- any:
--   acme | NULL | NULL | not_permitted
