SELECT id, who(user_id) FROM emails ORDER BY id;

-- soft and hard:
--   2 | ben
