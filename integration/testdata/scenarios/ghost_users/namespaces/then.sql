SELECT id, who(owner_id) FROM namespaces ORDER BY id;

-- soft and hard:
--   2 | ben
