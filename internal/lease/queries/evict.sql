-- Ends the sessions that begin_batch named after the lease $1 and an earlier token than $2.
SELECT pg_catalog.pg_terminate_backend(activity.pid)
FROM pg_catalog.pg_stat_activity AS activity
WHERE activity.datname = pg_catalog.current_database()
  AND activity.usename = current_user
  AND activity.pid <> pg_catalog.pg_backend_pid()
  AND pg_catalog.starts_with(activity.application_name, "sexton".session_name($1) OPERATOR(pg_catalog.||) '#')
  AND substring(activity.application_name FROM '#([0-9]+)$')::bigint < $2;
