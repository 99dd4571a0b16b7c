-- The group into which it was imported is there.
UPDATE import_placeholder_user_details SET namespace_id = 1;
