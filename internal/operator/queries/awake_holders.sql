-- Returns the sessions, other than workers, that hold the advisory lock with the keys $1 and $2 in any mode. An advisory
-- lock with two keys has objsubid 2.
SELECT pg_catalog.format('pid %s (%s)', held.pid, coalesce(nullif(session.application_name, ''), 'no application_name'))
FROM pg_catalog.pg_locks AS held
LEFT JOIN pg_catalog.pg_stat_activity AS session ON session.pid = held.pid
WHERE held.locktype = 'advisory'
  AND held.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database())
  AND held.classid = $1::bigint::pg_catalog.oid
  AND held.objid = $2::bigint::pg_catalog.oid
  AND held.objsubid = 2
  AND held.granted
  AND NOT pg_catalog.starts_with(coalesce(session.application_name, ''), 'sexton')
ORDER BY held.pid
