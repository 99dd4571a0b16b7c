SELECT id, who(user_id) FROM subscriptions ORDER BY id;

-- soft and hard:
--   2 | ben
