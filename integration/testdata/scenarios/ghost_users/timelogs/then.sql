SELECT id, who(user_id) FROM timelogs ORDER BY id;

-- soft:
--   1 | ghost
--   2 | ben
--
-- hard:
--   2 | ben
