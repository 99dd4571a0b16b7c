SELECT id, who(user_id) FROM keys ORDER BY id;

-- soft and hard:
--   2 | ben
