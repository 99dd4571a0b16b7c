SELECT id, stored_externally FROM merge_request_diffs ORDER BY 1;

-- any:
--   1 | NULL
--   2 | t
--   3 | NULL
--   4 | NULL
