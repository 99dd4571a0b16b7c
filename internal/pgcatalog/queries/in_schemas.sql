-- Returns the OIDs of the tables, views and foreign tables in the schemas $1.
SELECT class.oid
FROM pg_catalog.pg_class AS class
JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = class.relnamespace
WHERE namespace.nspname = ANY ($1) AND class.relkind IN ('r', 'p', 'v', 'm', 'f');
