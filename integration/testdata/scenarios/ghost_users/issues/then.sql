SELECT title, who(author_id), who(updated_by_id), who(last_edited_by_id), who(closed_by_id)
FROM issues WHERE id < 100 ORDER BY id;

-- soft:
--   written | ghost | ben | ben | ben
--   updated | ben | NULL | ben | ben
--   edited | ben | ben | ghost | ben
--   closed | ben | ben | ben | NULL
--   of Ben alone | ben | ben | ben | ben
--
-- hard:
--   updated | ben | NULL | ben | ben
--   edited | ben | ben | NULL | ben
--   closed | ben | ben | ben | NULL
--   of Ben alone | ben | ben | ben | ben
