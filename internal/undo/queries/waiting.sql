-- Returns the sets among $1 whose parents have pending tombstones.
SELECT DISTINCT waiting.origin
FROM "public".loose_foreign_keys_deleted_records AS waiting
WHERE waiting.origin = ANY ($1)
