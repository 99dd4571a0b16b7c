-- What is still to go with these parents of a set is not kept any more. NULL is all of them.
UPDATE "public".loose_foreign_keys_deleted_records AS waiting SET origin = NULL
WHERE waiting.origin OPERATOR(pg_catalog.=) $1::pg_catalog.int8
  AND ($2::pg_catalog.text[] IS NULL
    OR coalesce(waiting.primary_key_value::pg_catalog.text, waiting.primary_key_text) OPERATOR(pg_catalog.=) ANY ($2))
