SELECT id, who(author_id) FROM notes ORDER BY id;

-- soft:
--   1 | ghost
--   2 | ben
--
-- hard:
--   2 | ben
