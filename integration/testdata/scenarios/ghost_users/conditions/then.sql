SELECT note, who(author_id) FROM notes ORDER BY id;

-- soft:
--   moved | ghost
--   of the system | NULL
--   of a merge request | NULL
--   of Ben | ben
--
-- hard:
--   moved | NULL
--   of the system | NULL
--   of a merge request | NULL
--   of Ben | ben
