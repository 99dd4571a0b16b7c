-- Returns the names of the installed trigger functions in Sexton's schema ($1).
SELECT p.proname::pg_catalog.text
FROM pg_catalog.pg_proc AS p
JOIN pg_catalog.pg_namespace AS n ON n.oid = p.pronamespace AND n.nspname = $1::pg_catalog.text
WHERE p.pronargs = 0 AND p.prorettype = 'pg_catalog.trigger'::pg_catalog.regtype AND p.proname ~ '^(track|keep|wake)_'
ORDER BY p.proname;
