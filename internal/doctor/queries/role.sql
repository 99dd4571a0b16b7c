-- Returns the role whose privileges are checked, the current role, and whether a worker
-- is running. The checked role is $1 or, if $1 is empty, the role of the newest worker,
-- or else the current role. Returns no row if $1 does not exist. A worker is found by the
-- application_name of its listening connection, which all roles can see. If backend_start
-- is hidden from the current role, the connection with the highest pid counts as the
-- newest.
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
