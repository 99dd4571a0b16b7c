SELECT id, who(user_id) FROM personal_access_tokens ORDER BY id;

-- soft and hard:
--   2 | ben
