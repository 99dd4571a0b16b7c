SELECT issue_id, who(user_id) FROM issue_assignees ORDER BY 1, 2;

-- soft:
--   100 | ben
--   100 | ghost
--   101 | ghost
--
-- hard:
--   100 | ben
--   100 | ghost
