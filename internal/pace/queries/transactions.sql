-- Returns the virtual transaction IDs of the running transactions of other sessions on
-- the whole server. pg_locks shows them to every role, while pg_stat_activity hides the
-- state of sessions of other roles. Sessions of Sexton have an application_name that
-- begins with sexton. Sessions without a user, such as autovacuum, are left out:
-- autovacuum follows Sexton's own work, and no user waits for it.
SELECT held.virtualtransaction
FROM pg_catalog.pg_locks AS held
JOIN pg_catalog.pg_stat_activity AS session ON session.pid OPERATOR(pg_catalog.=) held.pid
WHERE held.locktype OPERATOR(pg_catalog.=) 'virtualxid' AND held.granted
  AND session.usesysid IS NOT NULL
  AND NOT pg_catalog.starts_with(coalesce(session.application_name, ''), 'sexton');
