-- What is still to go with these parents is not kept any more.
UPDATE "public".loose_foreign_keys_deleted_records AS waiting SET origin = NULL WHERE waiting.origin = ANY ($1)
