-- Returns the role whose rights are checked ($1, the role of the newest running worker, or the current role), the current role, and whether a worker
-- runs. Returns no row if $1 does not exist. The connection that listens identifies a worker. All roles can see role and application_name of sessions.
-- Only some can see backend_start, so the pid replaces it.
SELECT role.rolname::pg_catalog.text, current_user::pg_catalog.text, worker.name IS NOT NULL
FROM (SELECT) AS one
LEFT JOIN (
    SELECT activity.usename AS name
    FROM pg_catalog.pg_stat_activity AS activity
    WHERE activity.datname = pg_catalog.current_database() AND activity.application_name LIKE 'sexton%(worker)'
    ORDER BY activity.backend_start DESC NULLS LAST, activity.pid DESC
    LIMIT 1
) AS worker ON true
JOIN pg_catalog.pg_roles AS role ON role.rolname = CASE WHEN $1::pg_catalog.text <> '' THEN $1 ELSE coalesce(worker.name, current_user) END;
