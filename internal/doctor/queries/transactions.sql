-- Returns the five oldest transactions of this database that are older than $1 seconds.
-- Transactions of other databases delay neither vacuum nor rechecks here. Idle sessions
-- are ignored, because Postgres opens short transactions in them, whose xact_start is the
-- time of the last statement.
SELECT session.pid, coalesce(session.usename, '?')::pg_catalog.text, coalesce(nullif(session.application_name, ''), 'no application_name'),
       coalesce(session.state, '?'), session.xact_start
FROM pg_catalog.pg_stat_activity AS session
WHERE session.datname = pg_catalog.current_database()
  AND session.pid <> pg_catalog.pg_backend_pid()
  AND session.backend_type = 'client backend'
  AND session.state IS DISTINCT FROM 'idle'
  AND session.xact_start < pg_catalog.clock_timestamp() - pg_catalog.make_interval(secs => $1)
ORDER BY session.xact_start
LIMIT 5;
