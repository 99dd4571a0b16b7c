-- What package pgcatalog does not read of foreign keys, and what ANALYZE knows of their first column.
SELECT key.conrelid, key.conname::pg_catalog.text, key.confupdtype::pg_catalog.text, key.confmatchtype::pg_catalog.text, key.condeferrable, key.condeferred,
    pg_catalog.pg_get_constraintdef(key.oid),
    coalesce(stats.n_distinct, 0)::pg_catalog.float8, coalesce(stats.most_common_freqs[1], 0)::pg_catalog.float8
FROM pg_catalog.pg_constraint AS key
JOIN pg_catalog.pg_class AS class ON class.oid OPERATOR(pg_catalog.=) key.conrelid
JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid OPERATOR(pg_catalog.=) class.relnamespace
JOIN pg_catalog.pg_attribute AS attribute ON attribute.attrelid OPERATOR(pg_catalog.=) key.conrelid AND attribute.attnum OPERATOR(pg_catalog.=) key.conkey[1]
LEFT JOIN pg_catalog.pg_stats AS stats ON stats.schemaname OPERATOR(pg_catalog.=) namespace.nspname AND stats.tablename OPERATOR(pg_catalog.=) class.relname
    AND stats.attname OPERATOR(pg_catalog.=) attribute.attname AND stats.inherited OPERATOR(pg_catalog.=) (class.relkind OPERATOR(pg_catalog.=) 'p')
WHERE key.contype OPERATOR(pg_catalog.=) 'f' AND key.conparentid OPERATOR(pg_catalog.=) 0;
