-- The group of the import still exists.
UPDATE import_placeholder_user_details SET namespace_id = 1;
