-- Returns whether the server is older than Postgres 15, whether the role is a superuser, and what allows the role to silence triggers. Before
-- Postgres 15, only a superuser may silence triggers. The role is $1, or the current role if $1 is empty.
SELECT version.older, role.rolsuper,
    CASE WHEN version.older THEN 'run it as a superuser'
        ELSE pg_catalog.format('GRANT SET ON PARAMETER session_replication_role TO %I', role.rolname) END
FROM (SELECT pg_catalog.current_setting('server_version_num')::integer < 150000) AS version (older)
JOIN pg_catalog.pg_roles AS role ON role.rolname = CASE $1::pg_catalog.text WHEN '' THEN current_user ELSE $1 END
