SELECT id, who(user_id), who(awarded_by_user_id), who(revoked_by_user_id) FROM user_achievements ORDER BY id;

-- soft and hard:
--   2 | ben | ghost | ben
--   3 | ben | ben | ghost
--   4 | ben | ben | ben
