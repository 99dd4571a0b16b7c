SELECT title, who(author_id) FROM snippets ORDER BY id;

-- soft:
--   of the project | ghost
--   of Ben | ben
--
-- hard:
--   of Ben | ben
