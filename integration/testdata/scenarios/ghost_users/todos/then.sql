SELECT id, who(user_id), who(author_id) FROM todos ORDER BY id;

-- soft:
--   2 | ben | ghost
--   3 | ben | ben
--
-- hard:
--   3 | ben | ben
