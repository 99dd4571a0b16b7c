SELECT id, who(user_id) FROM resource_label_events ORDER BY id;

-- soft:
--   1 | ghost
--   2 | ben
--
-- hard:
--   1 | NULL
--   2 | ben
