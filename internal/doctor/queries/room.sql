-- Returns one row per limit on connections that applies to the role $1 (empty: the
-- current role): the object with the limit, the fix, the limit, and the number of
-- connections that are not Sexton's connections of that role. Limits of roles and
-- databases do not apply to superusers. Every role can see database, user and
-- application_name of all sessions in pg_stat_activity.
WITH role AS (
    SELECT oid, rolname, rolconnlimit, rolsuper FROM pg_catalog.pg_roles
    WHERE rolname = CASE $1::pg_catalog.text WHEN '' THEN current_user ELSE $1 END
), session AS (
    SELECT activity.datid, activity.usesysid, activity.application_name
    FROM pg_catalog.pg_stat_activity AS activity
    WHERE activity.datid IS NOT NULL AND activity.usesysid IS NOT NULL
      AND NOT (activity.usesysid = (SELECT oid FROM role) AND pg_catalog.starts_with(activity.application_name, 'sexton'))
), database AS (
    SELECT oid, datname, datconnlimit FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database()
)
SELECT 'max_connections', 'raise max_connections, or use a pooler',
       pg_catalog.current_setting('max_connections')::int - pg_catalog.current_setting('superuser_reserved_connections')::int
           - coalesce(pg_catalog.current_setting('reserved_connections', true)::int, 0),
       (SELECT pg_catalog.count(*) FROM session)::int
UNION ALL
SELECT pg_catalog.format('role %I', rolname), pg_catalog.format('ALTER ROLE %I CONNECTION LIMIT', rolname), rolconnlimit,
       (SELECT pg_catalog.count(*) FROM session WHERE session.usesysid = role.oid)::int
FROM role WHERE rolconnlimit >= 0 AND NOT rolsuper
UNION ALL
SELECT pg_catalog.format('database %I', datname), pg_catalog.format('ALTER DATABASE %I CONNECTION LIMIT', datname), datconnlimit,
       (SELECT pg_catalog.count(*) FROM session WHERE session.datid = database.oid)::int
FROM database WHERE datconnlimit >= 0 AND NOT (SELECT rolsuper FROM role);
