DROP TABLE IF EXISTS "public".loose_foreign_keys_deleted_records;

DELETE FROM "sexton".objects
WHERE identity = '"public".loose_foreign_keys_deleted_records';
