-- Returns the privileges of the current role, and whether the schema sexton and the
-- tracked schema ($1) exist. The comment of the schema sexton has the versions of the
-- components, because comments, unlike rows, are part of a schema dump.
SELECT
    current_user::pg_catalog.text,
    pg_catalog.current_database()::pg_catalog.text,
    own.oid IS NOT NULL,
    coalesce(pg_catalog.obj_description(own.oid, 'pg_namespace'), ''),
    tracked.oid IS NOT NULL,
    coalesce(pg_catalog.has_schema_privilege(tracked.oid, 'CREATE') AND pg_catalog.has_schema_privilege(tracked.oid, 'USAGE'), false)
FROM (VALUES (1)) AS one
LEFT JOIN pg_catalog.pg_namespace AS own ON own.nspname = 'sexton'
LEFT JOIN pg_catalog.pg_namespace AS tracked ON tracked.nspname = $1;
