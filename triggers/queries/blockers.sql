-- The sessions that hold a lock on a table ($1) which CREATE TRIGGER or DROP TRIGGER has to wait for.
SELECT DISTINCT l.pid
FROM pg_catalog.pg_locks AS l
JOIN pg_catalog.pg_database AS d ON d.oid = l.database AND d.datname = pg_catalog.current_database()
WHERE l.locktype = 'relation' AND l.relation = $1::pg_catalog.oid AND l.granted AND l.pid <> pg_catalog.pg_backend_pid()
    AND ($2 OR l.mode NOT IN ('AccessShareLock', 'RowShareLock'))
ORDER BY l.pid;
