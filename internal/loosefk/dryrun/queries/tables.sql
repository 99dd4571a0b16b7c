SELECT class.oid, namespace.nspname, class.relname, class.relkind::pg_catalog.text, class.relpages
FROM pg_catalog.pg_class AS class
JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = class.relnamespace
WHERE class.oid = ANY ($1) AND class.relkind IN ('r', 'p')
