-- Returns the columns of the tables $1, or of their partitioned tables, whose names look personal and that are not among $2. Each column is
-- returned twice: as its name, and in the form of $2, in which tables of the schema $3 have no schema.
SELECT pg_catalog.format('%I.%I', n.nspname, c.relname) AS name,
    pg_catalog.array_agg(a.attname::pg_catalog.text ORDER BY a.attnum),
    pg_catalog.array_agg(pg_catalog.concat(CASE WHEN n.nspname <> $3 THEN n.nspname || '.' END, c.relname, '.', a.attname) ORDER BY a.attnum)
FROM (
    SELECT DISTINCT coalesce(pg_catalog.pg_partition_root(given.name::pg_catalog.regclass), given.name::pg_catalog.regclass)::pg_catalog.oid AS oid
    FROM pg_catalog.unnest($1::pg_catalog.text[]) AS given (name)
) AS kept
JOIN pg_catalog.pg_class AS c ON c.oid = kept.oid
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
JOIN pg_catalog.pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE a.attname ~* '(e_?mail|phone|address|token|password|name(_|$)|(^|_)ip(_|$))'
  AND pg_catalog.concat(c.relname, '.', a.attname) <> ALL ($2::pg_catalog.text[])
  AND pg_catalog.concat(n.nspname, '.', c.relname, '.', a.attname) <> ALL ($2::pg_catalog.text[])
GROUP BY n.nspname, c.relname
ORDER BY name;
