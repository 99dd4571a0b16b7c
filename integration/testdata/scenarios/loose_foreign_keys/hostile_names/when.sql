-- One tombstone is created by the trigger, one by an INSERT.
DELETE FROM "Sche ma"."Pa""rents; DROP TABLE x" WHERE id = 1;
INSERT INTO loose_foreign_keys_deleted_records (fully_qualified_table_name, primary_key_value)
SELECT quote_ident('Sche ma') || '.' || quote_ident('Pa"rents; DROP TABLE x'), 1;
