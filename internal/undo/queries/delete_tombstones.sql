-- Deletes the tombstones of restored parents. IS TRUE makes the planner hash the keys, because a deletion of 200,000 rows has as many tombstones.
DELETE FROM "public".loose_foreign_keys_deleted_records AS waiting
WHERE waiting.origin OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.int8[])
  AND coalesce(waiting.parent_oid, $3::pg_catalog.oid) OPERATOR(pg_catalog.=) $3::pg_catalog.oid
  AND (coalesce(waiting.primary_key_value::pg_catalog.text, waiting.primary_key_text)
      OPERATOR(pg_catalog.=) ANY (SELECT given.key FROM pg_catalog.unnest($2::pg_catalog.text[]) AS given (key))) IS TRUE
