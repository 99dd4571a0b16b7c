-- The transactions of others that run now, on the whole server, by their virtual transactions: pg_locks hides none from any role, as
-- pg_stat_activity hides states. A session of Sexton's has a name that begins so; one without a user is autovacuum or the like, which follows
-- Sexton's own work and feels nothing.
SELECT held.virtualtransaction
FROM pg_catalog.pg_locks AS held
JOIN pg_catalog.pg_stat_activity AS session ON session.pid OPERATOR(pg_catalog.=) held.pid
WHERE held.locktype OPERATOR(pg_catalog.=) 'virtualxid' AND held.granted
  AND session.usesysid IS NOT NULL
  AND NOT pg_catalog.starts_with(coalesce(session.application_name, ''), 'sexton');
