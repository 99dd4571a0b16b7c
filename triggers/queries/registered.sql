-- The trigger functions that Sexton created in its schema ($1).
SELECT p.proname::pg_catalog.text
FROM "sexton".objects AS o
JOIN pg_catalog.pg_namespace AS n ON n.nspname = $1::pg_catalog.text
JOIN pg_catalog.pg_proc AS p ON p.pronamespace = n.oid AND p.pronargs = 0
    AND o.identity = '"sexton".' || pg_catalog.quote_ident(p.proname) || '()'
WHERE o.component = 'triggers' AND o.kind = 'function'
ORDER BY p.proname;
