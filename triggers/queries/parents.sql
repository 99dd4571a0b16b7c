-- Returns the parents' data from the catalog, with one row per key column in the given
-- order. $1 has the schemas, $2 the tables and $3 the key columns, in the same order. oid
-- is 0 if the table does not exist. key_class is '' if the column does not exist. Domains
-- count as their base types.
WITH RECURSIVE wanted AS (
    SELECT w.ordinal, c.oid, c.relkind, c.relpersistence, c.relispartition, n.nspname, c.relname, a.atttypid, a.attnum
    FROM unnest($1::pg_catalog.text[], $2::pg_catalog.text[], $3::pg_catalog.text[])
        WITH ORDINALITY AS w (schema_name, table_name, key_column, ordinal)
    LEFT JOIN pg_catalog.pg_namespace AS n ON n.nspname = w.schema_name
    LEFT JOIN pg_catalog.pg_class AS c
        ON c.relnamespace = n.oid AND c.relname = w.table_name
        AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
    LEFT JOIN pg_catalog.pg_attribute AS a
        ON a.attrelid = c.oid AND a.attname = w.key_column AND a.attnum > 0 AND NOT a.attisdropped
),
base_types AS (
    SELECT w.ordinal, t.oid, t.typtype, t.typbasetype
    FROM wanted AS w
    JOIN pg_catalog.pg_type AS t ON t.oid = w.atttypid
    UNION ALL
    SELECT b.ordinal, t.oid, t.typtype, t.typbasetype
    FROM base_types AS b
    JOIN pg_catalog.pg_type AS t ON t.oid = b.typbasetype
    WHERE b.typtype = 'd'
)
SELECT
    coalesce(w.oid, 0) AS oid,
    coalesce(w.relkind::pg_catalog.text, '') AS relkind,
    coalesce(w.relpersistence = 't', false) AS temporary,
    CASE WHEN w.relispartition
        THEN (SELECT pg_catalog.format('%I.%I', rn.nspname, rc.relname)
              FROM pg_catalog.pg_class AS rc
              JOIN pg_catalog.pg_namespace AS rn ON rn.oid = rc.relnamespace
              WHERE rc.oid = pg_catalog.pg_partition_root(w.oid))
        ELSE ''
    END AS partition_of,
    CASE WHEN w.oid IS NULL THEN '' ELSE pg_catalog.format('%I.%I', w.nspname, w.relname) END AS recorded,
    CASE
        WHEN b.oid IS NULL THEN ''
        WHEN b.oid IN ('int2'::pg_catalog.regtype, 'int4'::pg_catalog.regtype, 'int8'::pg_catalog.regtype) THEN 'bigint'
        ELSE 'text'
    END AS key_class,
    coalesce(w.attnum, 0) AS number,
    coalesce(w.atttypid, 0) AS type
FROM wanted AS w
LEFT JOIN base_types AS b ON b.ordinal = w.ordinal AND b.typtype <> 'd'
ORDER BY w.ordinal;
