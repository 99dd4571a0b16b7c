-- Returns the attributes of foreign keys that package pgcatalog does not read, and the statistics of ANALYZE for the first column.
SELECT key.conrelid, key.conname::pg_catalog.text, key.confupdtype::pg_catalog.text, key.confmatchtype::pg_catalog.text, key.condeferrable, key.condeferred,
    pg_catalog.pg_get_constraintdef(key.oid),
    coalesce(stats.n_distinct, 0)::pg_catalog.float8, coalesce(stats.most_common_freqs[1], 0)::pg_catalog.float8
FROM pg_catalog.pg_constraint AS key
JOIN pg_catalog.pg_class AS class ON class.oid = key.conrelid
JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = class.relnamespace
JOIN pg_catalog.pg_attribute AS attribute ON attribute.attrelid = key.conrelid AND attribute.attnum = key.conkey[1]
LEFT JOIN pg_catalog.pg_stats AS stats ON stats.schemaname = namespace.nspname AND stats.tablename = class.relname
    AND stats.attname = attribute.attname AND stats.inherited = (class.relkind = 'p')
WHERE key.contype = 'f' AND key.conparentid = 0;
