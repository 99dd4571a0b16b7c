SELECT id, partition_id, who(user_id) FROM p_ci_builds ORDER BY id;

-- soft:
--   1 | 100 | ghost
--   2 | 101 | ghost
--   3 | 101 | ben
--
-- hard:
--   1 | 100 | NULL
--   2 | 101 | NULL
--   3 | 101 | ben
