DROP TABLE IF EXISTS "sexton".swept, "public".loose_foreign_keys_deleted_records;
