-- Returns whether the role may silence triggers, from Postgres 15 on, which has the function.
SELECT pg_catalog.has_parameter_privilege('session_replication_role', 'SET')
