-- Tombstones for parents, as the tracking trigger writes them: their clean-up is done again.
INSERT INTO "public".loose_foreign_keys_deleted_records (fully_qualified_table_name, parent_oid, primary_key_value, primary_key_text, origin)
SELECT $1::pg_catalog.text, $2::pg_catalog.oid, CASE WHEN $3::pg_catalog.bool THEN gone.key::pg_catalog.int8 END,
    CASE WHEN NOT $3::pg_catalog.bool THEN gone.key END, gone.origin
FROM ROWS FROM (pg_catalog.unnest($4::pg_catalog.text[]), pg_catalog.unnest($5::pg_catalog.int8[])) AS gone (key, origin)
