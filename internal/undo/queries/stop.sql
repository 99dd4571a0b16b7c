-- Ends the clean-up after parents of a set that are back; NULL is all of them.
DELETE FROM "public".loose_foreign_keys_deleted_records AS waiting
WHERE waiting.origin = $1
  AND ($2::pg_catalog.text[] IS NULL OR coalesce(waiting.primary_key_value::pg_catalog.text, waiting.primary_key_text) = ANY ($2))
