-- Returns the age in seconds of the oldest open transaction of a database with children.
-- $1 is confirm_after in seconds, which recheck.sql has as $2.
SELECT coalesce(extract(epoch FROM pg_catalog.clock_timestamp() - pg_catalog.min(one.began)), 0)::pg_catalog.float8
FROM (
    SELECT coalesce(session.xact_start, pg_catalog.clock_timestamp() - interval '10 years') AS began
    FROM pg_catalog.pg_stat_activity AS session
    WHERE session.datname = pg_catalog.current_database()
      AND session.pid <> pg_catalog.pg_backend_pid()
      AND coalesce(session.backend_type, '') <> ALL ('{walsender,autovacuum worker}')
      AND (session.xact_start IS NOT NULL OR session.backend_xid IS NOT NULL OR session.backend_xmin IS NOT NULL
          OR session.state = 'disabled')
    UNION ALL
    SELECT prepared.prepared - greatest(pg_catalog.make_interval(secs => $1::pg_catalog.float8), interval '10 minutes')
    FROM pg_catalog.pg_prepared_xacts AS prepared
    WHERE prepared.database = pg_catalog.current_database()
) AS one
