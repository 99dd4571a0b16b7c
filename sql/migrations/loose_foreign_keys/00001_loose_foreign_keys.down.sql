DROP VIEW IF EXISTS "sexton".revived;
DROP TABLE IF EXISTS "sexton".swept, "public".loose_foreign_keys_deleted_records;
