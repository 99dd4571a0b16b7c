-- Whether the role $1 may use the schema $2 and execute its function $3 with arguments of the types $4.
SELECT pg_catalog.has_schema_privilege($1::pg_catalog.name, namespace.oid, 'USAGE'), pg_catalog.has_function_privilege($1::pg_catalog.name, function.oid, 'EXECUTE')
FROM pg_catalog.pg_proc AS function
JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = function.pronamespace
WHERE namespace.nspname = $2 AND function.proname = $3 AND pg_catalog.oidvectortypes(function.proargtypes) = $4;
