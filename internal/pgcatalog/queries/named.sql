-- Returns the OIDs of the tables, views and foreign tables with the schemas $1 and the
-- names $2, in the same order.
SELECT class.oid
FROM unnest($1::pg_catalog.text[], $2::pg_catalog.text[]) AS wanted (schema, name)
JOIN pg_catalog.pg_namespace AS namespace ON namespace.nspname = wanted.schema
JOIN pg_catalog.pg_class AS class ON class.relnamespace = namespace.oid AND class.relname = wanted.name
WHERE class.relkind IN ('r', 'p', 'v', 'm', 'f');
