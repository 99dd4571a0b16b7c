SELECT coalesce(max(tombstone.origin), 0)
FROM "public".loose_foreign_keys_deleted_records AS tombstone
WHERE tombstone.fully_qualified_table_name = $1 AND tombstone.primary_key_value = $2::bigint
