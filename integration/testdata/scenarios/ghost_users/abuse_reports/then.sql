SELECT message, who(user_id), who(reporter_id) FROM abuse_reports ORDER BY id;

-- soft:
--   about Ada | NULL | ben
--   by Ada | ben | ghost
--   by Ben about himself | ben | ben
--
-- hard:
--   about Ada | NULL | ben
--   by Ada | ben | NULL
--   by Ben about himself | ben | ben
