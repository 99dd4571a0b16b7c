SELECT 'badges', id, who(user_id) FROM badges
UNION ALL SELECT 'rooms', id, who(user_id) FROM rooms
UNION ALL SELECT 'keepers', id, who(user_id) FROM keepers
UNION ALL SELECT 'users', id, who(invited_by_id) FROM users WHERE username = 'ben'
ORDER BY 1, 2;

-- soft and hard:
--   badges | 2 | ben
--   keepers | 1 | ben
--   keepers | 2 | ben
--   rooms | 1 | NULL
--   rooms | 2 | ben
--   users | 2 | NULL
