SELECT id, who(user_id) FROM merge_request_reviewers ORDER BY id;

-- soft and hard:
--   2 | ben
