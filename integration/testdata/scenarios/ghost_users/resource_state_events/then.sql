SELECT id, who(user_id) FROM resource_state_events ORDER BY id;

-- soft and hard:
--   1 | NULL
--   2 | ben
