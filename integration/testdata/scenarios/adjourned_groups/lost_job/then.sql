SELECT id FROM groups ORDER BY id;

-- any:
--   10
--   20
