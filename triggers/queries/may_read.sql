-- Whether the role $1 may use the schema of the table $2, and read the table, and whether the current role may grant the first.
SELECT pg_catalog.has_schema_privilege($1::pg_catalog.name, n.oid, 'USAGE'),
    pg_catalog.has_table_privilege($1::pg_catalog.name, c.oid, 'SELECT'), pg_catalog.pg_has_role(n.nspowner, 'USAGE')
FROM pg_catalog.pg_class AS c
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.oid = $2::pg_catalog.oid;
