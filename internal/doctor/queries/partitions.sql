-- Returns the partitioned tables on whose partitions the role $4 (empty: the current
-- role) cannot create triggers, with the GRANT that allows it. CREATE TRIGGER requires
-- membership in the role that owns the partition, and EXECUTE on the function.
SELECT pg_catalog.format('%I.%I', namespace.nspname, class.relname),
       CASE WHEN NOT pg_catalog.pg_has_role(role.rolname, class.relowner, 'USAGE')
           THEN pg_catalog.format('GRANT %I TO %I', pg_catalog.pg_get_userbyid(class.relowner), role.rolname)
           ELSE pg_catalog.format('GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA %I TO %I', $3::pg_catalog.text, role.rolname) END,
       pg_catalog.format('%I', role.rolname)
FROM pg_catalog.pg_roles AS role
CROSS JOIN unnest($1::pg_catalog.text[], $2::pg_catalog.text[]) AS wanted (schema, name)
JOIN pg_catalog.pg_namespace AS namespace ON namespace.nspname = wanted.schema
JOIN pg_catalog.pg_class AS class ON class.relnamespace = namespace.oid AND class.relname = wanted.name AND class.relkind = 'p'
WHERE role.rolname = CASE $4::pg_catalog.text WHEN '' THEN current_user ELSE $4 END AND (NOT pg_catalog.pg_has_role(role.rolname, class.relowner, 'USAGE')
    OR EXISTS (
        SELECT FROM pg_catalog.pg_trigger AS trigger
        JOIN pg_catalog.pg_proc AS proc ON proc.oid = trigger.tgfoid
        JOIN pg_catalog.pg_namespace AS home ON home.oid = proc.pronamespace AND home.nspname = $3::pg_catalog.text
        WHERE trigger.tgrelid = class.oid AND NOT pg_catalog.has_function_privilege(role.rolname, proc.oid, 'EXECUTE')
    ))
ORDER BY 1;
