-- How many of the registry's columns a table of its name in the schema $1 has.
SELECT pg_catalog.count(*)
FROM pg_catalog.pg_attribute AS a
JOIN pg_catalog.pg_class AS c ON c.oid = a.attrelid AND c.relname = 'objects' AND c.relkind = 'r'
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace AND n.nspname = $1
WHERE a.attname IN ('kind', 'identity', 'component') AND a.atttypid = 'pg_catalog.text'::pg_catalog.regtype;
