SELECT title, who(author_id), who(assignee_id), who(updated_by_id), who(last_edited_by_id), who(merge_user_id)
FROM merge_requests WHERE id < 100 ORDER BY id;

-- soft:
--   written | ghost | ben | ben | ben | ben
--   assigned | ben | NULL | ben | ben | ben
--   updated | ben | ben | NULL | ben | ben
--   edited | ben | ben | ben | NULL | ben
--   merged | ben | ben | ben | ben | ghost
--   of Ben alone | ben | ben | ben | ben | ben
--
-- hard:
--   assigned | ben | NULL | ben | ben | ben
--   updated | ben | ben | NULL | ben | ben
--   edited | ben | ben | ben | NULL | ben
--   merged | ben | ben | ben | ben | NULL
--   of Ben alone | ben | ben | ben | ben | ben
