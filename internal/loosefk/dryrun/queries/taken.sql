SELECT namespace.nspname, class.relname
FROM pg_catalog.pg_class AS class
JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = class.relnamespace
WHERE namespace.nspname = ANY ($1) AND class.relname ~ '_idx[0-9]*$'
