-- Returns the given tables that have pending tombstones.
SELECT wanted.name FROM pg_catalog.unnest($1::pg_catalog.text[]) AS wanted (name)
WHERE EXISTS (
    SELECT FROM "public".loose_foreign_keys_deleted_records AS tombstone
    WHERE tombstone.fully_qualified_table_name = wanted.name AND tombstone.status = 1
)
ORDER BY wanted.name
