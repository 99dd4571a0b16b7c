-- Returns a text with the sessions that block the session $1. The text is empty if no
-- session blocks it. A prepared transaction has the process id 0.
SELECT coalesce(pg_catalog.string_agg(DISTINCT CASE WHEN blocker.pid = 0 THEN 'a prepared transaction' ELSE
    pg_catalog.format('pid %s (%s, role %s)', blocker.pid, coalesce(nullif(session.application_name, ''), 'no application_name'),
        coalesce(session.usename::pg_catalog.text, 'unknown')) END, ', '), '')
FROM pg_catalog.unnest(pg_catalog.pg_blocking_pids($1)) AS blocker (pid)
LEFT JOIN pg_catalog.pg_stat_activity AS session ON session.pid = blocker.pid;
