SELECT id, who(merged_by_id), who(latest_closed_by_id) FROM merge_request_metrics ORDER BY id;

-- soft and hard:
--   1 | NULL | ben
--   2 | ben | NULL
--   3 | ben | ben
