SELECT id, who(user_id) FROM identities ORDER BY id;

-- soft and hard:
--   2 | ben
