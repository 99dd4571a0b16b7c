SELECT name, who(creator_id) FROM projects WHERE id < 100 ORDER BY id;

-- soft and hard:
--   of Ada | NULL
--   of Ben | ben
