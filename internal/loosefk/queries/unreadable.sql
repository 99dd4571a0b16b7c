SELECT pg_catalog.format('%I.%I', namespace.nspname, class.relname), pg_catalog.concat_ws('; ',
    CASE WHEN NOT looked.usage THEN pg_catalog.format('GRANT USAGE ON SCHEMA %I TO %I', namespace.nspname, role.rolname) END,
    CASE WHEN NOT looked.granted THEN pg_catalog.format('GRANT SELECT (%s) ON %I.%I TO %I', key.columns, namespace.nspname, class.relname, role.rolname) END,
    CASE WHEN looked.hidden THEN pg_catalog.format('ALTER ROLE %I BYPASSRLS', role.rolname) END)
FROM pg_catalog.pg_roles AS role
CROSS JOIN ROWS FROM (
    pg_catalog.unnest($1::pg_catalog.text[]), pg_catalog.unnest($2::pg_catalog.text[]), pg_catalog.unnest($3::pg_catalog.text[])
) WITH ORDINALITY AS wanted (schema, name, columns, position)
JOIN pg_catalog.pg_namespace AS namespace ON namespace.nspname = wanted.schema
JOIN pg_catalog.pg_class AS class
    ON class.relnamespace = namespace.oid AND class.relname = wanted.name
CROSS JOIN LATERAL (
    SELECT pg_catalog.string_agg(pg_catalog.quote_ident(named.name), ', ') AS columns,
           pg_catalog.bool_and(pg_catalog.has_column_privilege(role.rolname, class.oid, named.name, 'SELECT')) AS granted
    FROM pg_catalog.jsonb_array_elements_text(wanted.columns::pg_catalog.jsonb) AS named (name)
) AS key
CROSS JOIN LATERAL (
    SELECT pg_catalog.has_schema_privilege(role.rolname, class.relnamespace, 'USAGE') AS usage, key.granted,
           class.relrowsecurity AND NOT role.rolsuper AND NOT role.rolbypassrls
               AND (class.relforcerowsecurity OR NOT pg_catalog.pg_has_role(role.rolname, class.relowner, 'USAGE')) AS hidden
) AS looked
WHERE role.rolname = CASE $4::pg_catalog.text WHEN '' THEN current_user ELSE $4 END
  AND (NOT looked.usage OR NOT looked.granted OR looked.hidden)
ORDER BY wanted.position
