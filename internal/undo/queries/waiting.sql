-- The sets with deleted parents that still wait for the clean-up of their children.
SELECT DISTINCT waiting.origin
FROM "public".loose_foreign_keys_deleted_records AS waiting
WHERE waiting.origin = ANY ($1)
