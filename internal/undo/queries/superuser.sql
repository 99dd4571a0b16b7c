-- Returns whether the server is older than Postgres 15, in which only a superuser may silence triggers, whether the role is a superuser, and what
-- allows the role to silence triggers.
SELECT version.older, pg_catalog.current_setting('is_superuser') = 'on',
    CASE WHEN version.older THEN 'run it as a superuser'
        ELSE pg_catalog.format('GRANT SET ON PARAMETER session_replication_role TO %I', current_user) END
FROM (SELECT pg_catalog.current_setting('server_version_num')::integer < 150000) AS version (older)
