-- Whether the server is older than Postgres 15, where only a superuser may have triggers stay silent, and whether the role is one.
SELECT pg_catalog.current_setting('server_version_num')::integer < 150000, pg_catalog.current_setting('is_superuser') = 'on'
