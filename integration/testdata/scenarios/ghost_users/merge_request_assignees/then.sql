SELECT id, who(user_id) FROM merge_request_assignees ORDER BY id;

-- soft and hard:
--   2 | ben
