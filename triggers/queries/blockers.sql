-- The sessions that hold a lock on a table ($1) which CREATE TRIGGER or DROP TRIGGER has to wait for.
SELECT DISTINCT l.pid
FROM pg_locks AS l
JOIN pg_database AS d ON d.oid = l.database AND d.datname = current_database()
WHERE l.locktype = 'relation' AND l.relation = $1::oid AND l.granted AND l.pid <> pg_backend_pid()
    AND ($2 OR l.mode NOT IN ('AccessShareLock', 'RowShareLock'))
ORDER BY l.pid;
