SELECT id, who(creator_id) FROM packages_packages ORDER BY id;

-- soft and hard:
--   1 | NULL
--   2 | ben
