-- Every trigger that runs one of our functions ($1, oids), wherever it is, with its first argument: the name that its table,
-- or that table's root, had when it was installed.
SELECT
    c.oid,
    n.nspname::text AS schema_name,
    c.relname::text AS table_name,
    format('%I.%I', n.nspname, c.relname) AS display,
    tg.tgname::text AS name,
    convert_from(substring(tg.tgargs FROM 1 FOR greatest(position('\x00'::bytea IN tg.tgargs) - 1, 0)), getdatabaseencoding()) AS tracks
FROM pg_trigger AS tg
JOIN pg_class AS c ON c.oid = tg.tgrelid
JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE tg.tgfoid = ANY ($1::oid[]) AND NOT tg.tgisinternal
ORDER BY display, name;
