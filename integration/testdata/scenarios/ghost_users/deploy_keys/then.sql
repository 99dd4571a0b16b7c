SELECT id, who(user_id) FROM deploy_keys ORDER BY id;

-- soft and hard:
--   1 | NULL
--   2 | ben
