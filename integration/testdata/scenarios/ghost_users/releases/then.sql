SELECT id, who(author_id) FROM releases ORDER BY id;

-- soft:
--   1 | ghost
--   2 | ben
--
-- hard:
--   1 | NULL
--   2 | ben
