SELECT count(*) FROM "public".import_placeholder_user_details AS detail WHERE detail.namespace_id IS NOT NULL
