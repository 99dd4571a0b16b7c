-- What the current role may do, and what is in the schemas $1, of Sexton's own tables, and $2, of the tracked ones.
SELECT
    current_user::pg_catalog.text,
    pg_catalog.current_database()::pg_catalog.text,
    jobs.oid IS NOT NULL,
    pg_catalog.has_database_privilege(pg_catalog.current_database(), 'CREATE'),
    coalesce(pg_catalog.has_schema_privilege(jobs.oid, 'CREATE') AND pg_catalog.has_schema_privilege(jobs.oid, 'USAGE'), false),
    tracked.oid IS NOT NULL,
    coalesce(pg_catalog.has_schema_privilege(tracked.oid, 'CREATE') AND pg_catalog.has_schema_privilege(tracked.oid, 'USAGE'), false),
    ARRAY(SELECT c.relname::pg_catalog.text FROM pg_catalog.pg_class AS c WHERE c.relnamespace = jobs.oid ORDER BY c.relname)
FROM (VALUES (1)) AS one
LEFT JOIN pg_catalog.pg_namespace AS jobs ON jobs.nspname = $1
LEFT JOIN pg_catalog.pg_namespace AS tracked ON tracked.nspname = $2;
