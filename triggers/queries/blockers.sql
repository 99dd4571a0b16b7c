-- Returns the sessions with a lock on a table ($1) that CREATE TRIGGER, or DROP TRIGGER
-- ($2), must wait for. A prepared transaction has no session.
SELECT DISTINCT CASE WHEN l.pid IS NULL THEN 'a prepared transaction' ELSE
    pg_catalog.format('pid %s (%s, role %s)', l.pid, coalesce(nullif(session.application_name, ''), 'no application_name'),
        coalesce(session.usename::pg_catalog.text, 'unknown')) END
FROM pg_catalog.pg_locks AS l
JOIN pg_catalog.pg_database AS d ON d.oid = l.database AND d.datname = pg_catalog.current_database()
LEFT JOIN pg_catalog.pg_stat_activity AS session ON session.pid = l.pid
WHERE l.locktype = 'relation' AND l.relation = $1::pg_catalog.oid AND l.granted AND l.pid IS DISTINCT FROM pg_catalog.pg_backend_pid()
    AND ($2 OR l.mode NOT IN ('AccessShareLock', 'RowShareLock'))
ORDER BY 1;
