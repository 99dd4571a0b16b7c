-- Returns the superusers among the role $1 (empty: the current role) and the roles of the
-- running workers, and reports for each whether a worker uses it.
SELECT found.name, found.works
FROM (
    SELECT pg_catalog.format('%I', role.rolname) AS name,
        role.rolname = CASE $1::pg_catalog.text WHEN '' THEN current_user ELSE $1 END AS checked,
        EXISTS (
            SELECT FROM pg_catalog.pg_stat_activity AS worker
            WHERE worker.usesysid = role.oid AND worker.datname = pg_catalog.current_database()
              AND worker.application_name LIKE 'sexton%(worker)'
        ) AS works
    FROM pg_catalog.pg_roles AS role
    WHERE role.rolsuper
) AS found
WHERE found.checked OR found.works
ORDER BY found.name;
