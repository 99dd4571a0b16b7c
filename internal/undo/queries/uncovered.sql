-- Returns the parts of tables that are not kept. $1 (schemas) and $2 (names) are parallel lists of tables. The first $5 tables are parents, and the
-- rest are children. Columns are not kept if they are among $3. A table is too large if it has more than $4 bytes with its partitions, unless $4 is 0.
-- For parents the query also returns the tables that inherit from them. For children it also returns the rules for DELETE and UPDATE.
SELECT pg_catalog.format('%I.%I', n.nspname, c.relname) AS name,
    coalesce((
        SELECT pg_catalog.array_agg(a.attname::pg_catalog.text ORDER BY a.attnum)
        FROM pg_catalog.pg_attribute AS a
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
          AND (pg_catalog.concat(c.relname, '.', a.attname) = ANY ($3::pg_catalog.text[])
            OR pg_catalog.concat(n.nspname, '.', c.relname, '.', a.attname) = ANY ($3::pg_catalog.text[]))
    ), '{}') AS excluded,
    coalesce(CASE WHEN size.bytes > $4::bigint AND $4::bigint > 0 THEN size.bytes END, 0)::bigint AS too_large,
    coalesce((
        SELECT pg_catalog.array_agg(DISTINCT rule.rulename::pg_catalog.text)
        FROM pg_catalog.pg_rewrite AS rule
        WHERE rule.ev_type IN ('2', '4') AND pg_catalog.bool_or(w.place > $5::bigint)
          AND (rule.ev_class = c.oid OR rule.ev_class IN (SELECT leaf.relid::pg_catalog.oid FROM pg_catalog.pg_partition_tree(c.oid) AS leaf))
    ), '{}') AS rules,
    coalesce((
        SELECT pg_catalog.array_agg(pg_catalog.format('%I.%I', home.nspname, heir.relname) ORDER BY home.nspname, heir.relname)
        FROM pg_catalog.pg_inherits AS below
        JOIN pg_catalog.pg_class AS heir ON heir.oid = below.inhrelid AND NOT heir.relispartition
        JOIN pg_catalog.pg_namespace AS home ON home.oid = heir.relnamespace
        WHERE below.inhparent = c.oid AND pg_catalog.bool_or(w.place <= $5::bigint)
    ), '{}') AS heirs
FROM ROWS FROM (pg_catalog.unnest($1::pg_catalog.text[]), pg_catalog.unnest($2::pg_catalog.text[]))
    WITH ORDINALITY AS w (schema_name, table_name, place)
JOIN pg_catalog.pg_namespace AS n ON n.nspname = w.schema_name
JOIN pg_catalog.pg_class AS c ON c.relnamespace = n.oid AND c.relname = w.table_name
CROSS JOIN LATERAL (
    SELECT pg_catalog.sum(pg_catalog.pg_table_size(leaf.relid)) AS bytes FROM pg_catalog.pg_partition_tree(c.oid) AS leaf
    UNION ALL
    SELECT pg_catalog.pg_table_size(c.oid) WHERE c.relkind <> 'p'
    ORDER BY bytes DESC NULLS LAST
    LIMIT 1
) AS size
GROUP BY c.oid, n.nspname, c.relname, size.bytes
ORDER BY name
