-- Returns the statement that drops the functions which the registry lists for the component $1 and which are there.
SELECT coalesce('DROP FUNCTION ' || pg_catalog.string_agg(p.oid::pg_catalog.regprocedure::pg_catalog.text, ', '), 'SELECT')
FROM "sexton".objects AS o
JOIN pg_catalog.pg_proc AS p ON p.oid = pg_catalog.to_regprocedure(o.identity)
WHERE o.kind = 'function' AND o.component = $1;
