SELECT id, path, marked_for_deletion_on, (SELECT string_agg(payload ->> 'reason', ' ') FROM sexton.events
    WHERE kind = 'group_restored' AND payload ->> 'group_id' = groups.id::text) FROM groups ORDER BY id;

-- any:
--   10 | root | NULL | NULL
--   11 | child | NULL | user_missing
--   12 | grandchild | NULL | not_permitted
--   20 | other | NULL | not_permitted
