-- Returns Sexton's tables, in the schema sexton and in the schema $2, whose rows
-- row-level security hides from the role $1.
SELECT pg_catalog.format('%I.%I', namespace.nspname, class.relname), pg_catalog.format('%I', role.rolname)
FROM pg_catalog.pg_roles AS role
CROSS JOIN pg_catalog.pg_class AS class
JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = class.relnamespace
WHERE role.rolname = $1::pg_catalog.text AND NOT role.rolsuper AND NOT role.rolbypassrls
  AND class.relrowsecurity AND (class.relforcerowsecurity OR NOT pg_catalog.pg_has_role(role.rolname, class.relowner, 'USAGE'))
  AND (namespace.nspname = 'sexton' OR namespace.nspname = $2::pg_catalog.text
      AND pg_catalog.starts_with(pg_catalog.obj_description(class.oid, 'pg_class'), 'Sexton:'))
ORDER BY 1;
