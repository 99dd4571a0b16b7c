SELECT
    coalesce(pg_catalog.min(CASE WHEN session.seen AND session.xact_start OPERATOR(pg_catalog.>) pg_catalog.clock_timestamp() THEN '-infinity'
        WHEN session.seen THEN session.xact_start
        ELSE pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) pg_catalog.make_interval(secs => $1::pg_catalog.float8) END), 'infinity') AS horizon,
    coalesce(pg_catalog.bool_or(NOT session.seen), false) AS blind
FROM (
    SELECT activity.xact_start,
           (activity.state OPERATOR(pg_catalog.=) 'disabled') IS NOT TRUE
               AND (pg_catalog.pg_has_role('pg_read_all_stats', 'USAGE') OR coalesce(pg_catalog.pg_has_role(activity.usesysid, 'USAGE'), false)) AS seen
    FROM pg_catalog.pg_stat_activity AS activity
    WHERE activity.datname OPERATOR(pg_catalog.=) pg_catalog.current_database()
      AND activity.pid OPERATOR(pg_catalog.<>) pg_catalog.pg_backend_pid()
      AND activity.usesysid IS NOT NULL
      AND (activity.state OPERATOR(pg_catalog.=) 'idle' AND activity.backend_xid IS NULL AND activity.backend_xmin IS NULL) IS NOT TRUE
      AND coalesce(activity.backend_type, '') OPERATOR(pg_catalog.<>) ALL ('{autovacuum worker,parallel worker}')
      AND (activity.usename OPERATOR(pg_catalog.=) current_user AND activity.application_name OPERATOR(pg_catalog.=) 'sexton second look') IS NOT TRUE
) AS session
