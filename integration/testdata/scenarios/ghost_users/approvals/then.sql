SELECT id, who(user_id) FROM approvals ORDER BY id;

-- soft and hard:
--   2 | ben
