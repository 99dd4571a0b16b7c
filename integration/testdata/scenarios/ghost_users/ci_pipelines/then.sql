SELECT id, who(user_id) FROM ci_pipelines ORDER BY id;

-- soft:
--   1 | ghost
--   2 | ben
--
-- hard:
--   1 | NULL
--   2 | ben
