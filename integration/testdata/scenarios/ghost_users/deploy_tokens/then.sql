SELECT id, who(creator_id) FROM deploy_tokens ORDER BY id;

-- soft and hard:
--   1 | NULL
--   2 | ben
