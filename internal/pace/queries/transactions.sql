-- Returns the running transactions of other sessions on the whole server, as virtual transactions. pg_locks shows them to every role, while
-- pg_stat_activity hides the state of sessions. Sessions of Sexton have names that begin with sexton. Sessions without a user, such as
-- autovacuum, do not count: they follow Sexton's own work, and nobody waits for them.
SELECT held.virtualtransaction
FROM pg_catalog.pg_locks AS held
JOIN pg_catalog.pg_stat_activity AS session ON session.pid OPERATOR(pg_catalog.=) held.pid
WHERE held.locktype OPERATOR(pg_catalog.=) 'virtualxid' AND held.granted
  AND session.usesysid IS NOT NULL
  AND NOT pg_catalog.starts_with(coalesce(session.application_name, ''), 'sexton');
