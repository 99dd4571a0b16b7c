SELECT id, who(user_id), who(created_by_id) FROM members ORDER BY id;

-- soft and hard:
--   2 | ben | NULL
--   3 | ben | ben
