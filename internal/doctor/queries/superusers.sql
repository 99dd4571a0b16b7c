-- The superusers among the role that asks and those of workers, whose sessions listen.
SELECT found.name, found.works
FROM (
    SELECT pg_catalog.format('%I', role.rolname) AS name, role.rolname OPERATOR(pg_catalog.=) current_user AS asks, EXISTS (
        SELECT FROM pg_catalog.pg_stat_activity AS worker
        WHERE worker.usesysid OPERATOR(pg_catalog.=) role.oid
          AND worker.datname OPERATOR(pg_catalog.=) pg_catalog.current_database()
          AND pg_catalog.starts_with(worker.application_name, 'sexton')
          AND pg_catalog.lower(worker.query) OPERATOR(pg_catalog.=) 'listen "sexton_wake"'
    ) AS works
    FROM pg_catalog.pg_roles AS role
    WHERE role.rolsuper
) AS found
WHERE found.asks OR found.works
ORDER BY found.name;
