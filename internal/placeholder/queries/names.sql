-- The tables of a schema, partitions left out.
SELECT class.relname::pg_catalog.text FROM pg_catalog.pg_class AS class
JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid OPERATOR(pg_catalog.=) class.relnamespace
WHERE namespace.nspname OPERATOR(pg_catalog.=) $1 AND class.relkind OPERATOR(pg_catalog.=) ANY ('{r,p}') AND NOT class.relispartition
ORDER BY 1
