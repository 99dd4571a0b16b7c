SELECT tableoid::regclass, id FROM children UNION ALL SELECT 'children_1', id FROM children_1;

-- any:
--   children_1 | 1
