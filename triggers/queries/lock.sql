-- Tries to take the advisory lock $1 for the session, or else returns the sessions that
-- hold it. Any role may take an advisory lock and keep it.
WITH tried AS MATERIALIZED (
    SELECT pg_catalog.pg_try_advisory_lock($1) AS had
)
SELECT CASE WHEN tried.had THEN '' ELSE coalesce((
    SELECT pg_catalog.string_agg(
        pg_catalog.format('pid %s (%s, role %s)', held.pid, coalesce(nullif(session.application_name, ''), 'no application_name'),
            coalesce(session.usename::pg_catalog.text, 'unknown')),
        ', ' ORDER BY held.pid)
    FROM pg_catalog.pg_locks AS held
    JOIN pg_catalog.pg_database AS own ON own.oid = held.database AND own.datname = pg_catalog.current_database()
    LEFT JOIN pg_catalog.pg_stat_activity AS session ON session.pid = held.pid
    WHERE held.locktype = 'advisory'
      AND held.granted
      AND held.objsubid = 1
      AND held.classid = ($1::pg_catalog.int8 >> 32)::pg_catalog.oid
      AND held.objid = ($1::pg_catalog.int8 & 4294967295)::pg_catalog.oid
), 'a session that has just ended') END
FROM tried;
