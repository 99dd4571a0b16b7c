-- Whether the role may have triggers stay silent. Before Postgres 15 only a superuser may.
SELECT CASE WHEN pg_catalog.current_setting('server_version_num')::integer >= 150000
    THEN pg_catalog.has_parameter_privilege('session_replication_role', 'SET')
    ELSE pg_catalog.current_setting('is_superuser') = 'on' END
