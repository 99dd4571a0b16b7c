-- Returns the sets among $1 that have rows with pending tombstones.
SELECT DISTINCT waiting.origin
FROM "public".loose_foreign_keys_deleted_records AS waiting
WHERE waiting.origin = ANY ($1)
