SELECT id, who(placeholder_user_id), who(reassign_to_user_id), who(reassigned_by_user_id)
FROM import_source_users ORDER BY id;

-- soft and hard:
--   1 | NULL | ben | ben
--   2 | ben | NULL | ben
--   3 | ben | ben | NULL
--   4 | ben | ben | ben
