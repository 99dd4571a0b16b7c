SELECT issue_id, who(user_id) FROM issue_assignees ORDER BY user_id;

-- soft and hard:
--   100 | ben
