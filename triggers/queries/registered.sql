-- The trigger functions that Sexton created in its schema ($1), and whether the table has gone that one was made for, and no trigger runs it.
SELECT p.oid, p.proname::pg_catalog.text,
    CASE WHEN p.proname OPERATOR(pg_catalog.~) '^track_[0-9a-f]{12}_[0-9]{1,10}$' THEN
        NOT EXISTS (SELECT FROM pg_catalog.pg_class AS c WHERE c.oid = pg_catalog.split_part(p.proname::pg_catalog.text, '_', 3)::bigint::pg_catalog.oid)
        AND NOT EXISTS (SELECT FROM pg_catalog.pg_trigger AS tg WHERE tg.tgfoid = p.oid)
        ELSE false END AS orphaned
FROM "sexton".objects AS o
JOIN pg_catalog.pg_namespace AS n ON n.nspname = $1::pg_catalog.text
JOIN pg_catalog.pg_proc AS p ON p.pronamespace = n.oid AND p.pronargs = 0
    AND o.identity = '"sexton".' || pg_catalog.quote_ident(p.proname) || '()'
WHERE o.component = 'triggers' AND o.kind = 'function'
ORDER BY p.proname;
