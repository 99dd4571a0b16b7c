SELECT id, who(author_id) FROM events ORDER BY id;

-- soft and hard:
--   2 | ben
