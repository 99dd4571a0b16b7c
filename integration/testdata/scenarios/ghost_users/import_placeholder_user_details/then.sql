SELECT id, who(placeholder_user_id) FROM import_placeholder_user_details ORDER BY id;

-- soft and hard:
--   2 | ben
