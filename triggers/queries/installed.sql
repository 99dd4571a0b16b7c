-- Returns every trigger that runs one of Sexton's functions (schema $1, names $2), with
-- its first argument. The argument is the name that the trigger's table, or the root of
-- that table, had when the trigger was installed.
SELECT
    c.oid,
    n.nspname::pg_catalog.text AS schema_name,
    c.relname::pg_catalog.text AS table_name,
    pg_catalog.format('%I.%I', n.nspname, c.relname) AS display,
    tg.tgname::pg_catalog.text AS name,
    p.proname::pg_catalog.text AS function_name,
    pg_catalog.convert_from(substring(tg.tgargs FROM 1 FOR greatest(position(E'\\x00'::pg_catalog.bytea IN tg.tgargs) - 1, 0)), pg_catalog.getdatabaseencoding()) AS tracks
FROM pg_catalog.pg_trigger AS tg
JOIN pg_catalog.pg_class AS c ON c.oid = tg.tgrelid
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
JOIN pg_catalog.pg_proc AS p ON p.oid = tg.tgfoid
JOIN pg_catalog.pg_namespace AS home ON home.oid = p.pronamespace
WHERE home.nspname = $1::pg_catalog.text AND p.proname = ANY ($2::pg_catalog.text[]) AND p.pronargs = 0 AND NOT tg.tgisinternal
ORDER BY display, name;
