SELECT id, day, who(user_id) FROM visits ORDER BY id;

-- soft:
--   1 | 1 | ghost
--   2 | 2 | ghost
--   3 | 1 | ben
--   12 | 2 | ghost
--   13 | 2 | ben
--
-- hard:
--   1 | 1 | NULL
--   2 | 2 | NULL
--   3 | 1 | ben
--   12 | 2 | NULL
--   13 | 2 | ben
