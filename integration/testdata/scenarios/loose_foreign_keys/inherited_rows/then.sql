SELECT id, parent_id FROM children ORDER BY id;

-- any:
--   20 | 2
--   30 | 3
--   1000 | 1
