-- Returns the search_path of the session, and the schemas of the path in which another
-- role that is not a superuser may create objects. The query runs outside of Sexton's
-- transactions, because these set a path of their own.
SELECT pg_catalog.current_setting('search_path'), pg_catalog.format('%I', current_user),
    coalesce(pg_catalog.array_agg(pg_catalog.format('%I', namespace.nspname) ORDER BY path.position), ARRAY[]::pg_catalog.text[])
FROM pg_catalog.unnest(pg_catalog.current_schemas(false)) WITH ORDINALITY AS path (name, position)
JOIN pg_catalog.pg_namespace AS namespace ON namespace.nspname OPERATOR(pg_catalog.=) path.name
WHERE NOT pg_catalog.starts_with(namespace.nspname::pg_catalog.text, 'pg_')
  AND EXISTS (
      SELECT FROM pg_catalog.pg_roles AS role
      WHERE NOT role.rolsuper
        AND NOT pg_catalog.starts_with(role.rolname::pg_catalog.text, 'pg_')
        AND role.rolname OPERATOR(pg_catalog.<>) current_user
        AND pg_catalog.has_schema_privilege(role.oid, namespace.oid, 'CREATE')
  );
