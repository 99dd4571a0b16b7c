-- Only the owner of a partition may give it a trigger, and only a role that may run the functions.
SELECT pg_catalog.format('%I.%I', namespace.nspname, class.relname),
       CASE WHEN NOT pg_catalog.pg_has_role(class.relowner, 'USAGE')
           THEN pg_catalog.format('GRANT %I TO %I', pg_catalog.pg_get_userbyid(class.relowner), current_user)
           ELSE pg_catalog.format('GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA %I TO %I', $3::pg_catalog.text, current_user) END,
       pg_catalog.format('%I', current_user)
FROM unnest($1::pg_catalog.text[], $2::pg_catalog.text[]) AS wanted (schema, name)
JOIN pg_catalog.pg_namespace AS namespace ON namespace.nspname = wanted.schema
JOIN pg_catalog.pg_class AS class ON class.relnamespace = namespace.oid AND class.relname = wanted.name AND class.relkind = 'p'
WHERE NOT pg_catalog.pg_has_role(class.relowner, 'USAGE')
    OR EXISTS (
        SELECT FROM pg_catalog.pg_trigger AS trigger
        JOIN pg_catalog.pg_proc AS proc ON proc.oid = trigger.tgfoid
        JOIN pg_catalog.pg_namespace AS home ON home.oid = proc.pronamespace AND home.nspname = $3::pg_catalog.text
        WHERE trigger.tgrelid = class.oid AND NOT pg_catalog.has_function_privilege(proc.oid, 'EXECUTE')
    )
ORDER BY 1;
