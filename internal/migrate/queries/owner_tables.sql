-- Returns the relations among $2 of the application's schema $1 that Sexton's functions
-- do not read, and reports for each whether it is a table.
SELECT class.relname::pg_catalog.text, class.relkind IN ('r', 'p')
FROM pg_catalog.pg_class AS class
JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = class.relnamespace AND namespace.nspname = $1::pg_catalog.text
WHERE class.relname = ANY ($2::pg_catalog.text[]) AND class.relkind IN ('r', 'p', 'v', 'm', 'f')
  AND NOT EXISTS (SELECT FROM "sexton".application_tables AS known WHERE known.relation = class.oid AND known.name = class.relname)
ORDER BY class.relname;
