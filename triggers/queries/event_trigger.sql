-- The event trigger for new partitions: $1 schema of the functions, $2 name of the function, $3 name of the event trigger. Whether it
-- was installed once, whether the current role may create it, the function, the event trigger, and an event trigger of others in its way.
SELECT
    p.oid IS NOT NULL OR e.oid IS NOT NULL AS wanted,
    (SELECT r.rolsuper FROM pg_catalog.pg_roles AS r WHERE r.rolname = current_user) AS superuser,
    p.oid IS NOT NULL AS has_function,
    coalesce(p.prosrc, '') AS body,
    coalesce(p.proconfig, '{}') AS settings,
    coalesce(p.prosecdef AND p.prorettype = 'pg_catalog.event_trigger'::pg_catalog.regtype AND r.rolsuper, false) AS mighty,
    e.oid IS NOT NULL AS has_trigger,
    coalesce(e.evtfoid = p.oid, false) AS runs_it,
    coalesce(e.evtenabled = 'O', false) AS enabled,
    coalesce(e.evtevent = 'ddl_command_end' AND e.evttags @> '{ALTER TABLE,CREATE SCHEMA,CREATE TABLE}', false) AS event_matches,
    "loud" AS loud
FROM (VALUES (1)) AS one
LEFT JOIN pg_catalog.pg_namespace AS n ON n.nspname = $1::pg_catalog.text
LEFT JOIN pg_catalog.pg_proc AS p ON p.pronamespace = n.oid AND p.proname = $2::pg_catalog.text AND p.pronargs = 0
LEFT JOIN pg_catalog.pg_roles AS r ON r.oid = p.proowner
LEFT JOIN pg_catalog.pg_event_trigger AS e ON e.evtname = $3::pg_catalog.text;
