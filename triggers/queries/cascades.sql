-- Returns the native foreign keys that delete or change rows below rows that are kept. $1
-- (schemas) and $2 (names), in the same order, are the tables whose rows are kept when
-- they are deleted. $3 reports for each of these tables whether its own trigger also
-- keeps rows that foreign keys delete. The query follows foreign keys that delete rows to
-- further tables. It includes the foreign keys of partitions, and foreign keys that refer
-- to the partitioned table. from_tables are the tables of $2 from which a key is reached.
-- Rows of the tables $5 in the schemas $4, in the same order, are never kept.
WITH RECURSIVE given AS (
    SELECT c.oid, c.oid::pg_catalog.regclass::pg_catalog.text AS name, w.tracked
    FROM ROWS FROM (pg_catalog.unnest($1::pg_catalog.text[]), pg_catalog.unnest($2::pg_catalog.text[]), pg_catalog.unnest($3::pg_catalog.bool[]))
        AS w (schema_name, table_name, tracked)
    JOIN pg_catalog.pg_namespace AS n ON n.nspname = w.schema_name
    JOIN pg_catalog.pg_class AS c ON c.relnamespace = n.oid AND c.relname = w.table_name
),
spared AS (
    SELECT c.oid
    FROM ROWS FROM (pg_catalog.unnest($4::pg_catalog.text[]), pg_catalog.unnest($5::pg_catalog.text[])) AS w (schema_name, table_name)
    JOIN pg_catalog.pg_namespace AS n ON n.nspname = w.schema_name
    JOIN pg_catalog.pg_class AS c ON c.relnamespace = n.oid AND c.relname = w.table_name
),
kept AS (
    SELECT given.name, given.oid FROM given
    UNION
    SELECT kept.name, further.oid
    FROM kept
    CROSS JOIN LATERAL (
        SELECT part.inhrelid FROM pg_catalog.pg_inherits AS part WHERE part.inhparent = kept.oid
        UNION ALL
        SELECT key.conrelid
        FROM (
            SELECT kept.oid
            UNION
            SELECT up.relid::pg_catalog.oid FROM pg_catalog.pg_partition_ancestors(kept.oid) AS up (relid)
        ) AS target (oid)
        JOIN pg_catalog.pg_constraint AS key ON key.confrelid = target.oid
        WHERE key.contype = 'f' AND key.confdeltype = 'c' AND key.conparentid = 0
    ) AS further (oid)
    WHERE NOT EXISTS (SELECT FROM spared WHERE spared.oid = further.oid)
)
SELECT
    c.oid,
    n.nspname::pg_catalog.text AS schema_name,
    c.relname::pg_catalog.text AS table_name,
    pg_catalog.format('%I.%I', n.nspname, c.relname) AS display,
    key.conname::pg_catalog.text AS constraint_name,
    pg_catalog.format('%I.%I', home.nspname, above.relname) AS above,
    pg_catalog.array_agg(DISTINCT kept.name ORDER BY kept.name) AS from_tables,
    key.confdeltype::pg_catalog.text AS action,
    EXISTS (SELECT FROM given WHERE given.oid = coalesce(pg_catalog.pg_partition_root(c.oid)::pg_catalog.oid, c.oid) AND given.tracked) AS tracked,
    EXISTS (SELECT FROM pg_catalog.pg_index AS i WHERE i.indrelid = c.oid AND i.indisprimary) AS keyed,
    key.confdeltype = 'c' AND EXISTS (SELECT FROM spared WHERE spared.oid = c.oid) AS spared
FROM kept
CROSS JOIN LATERAL (
    SELECT kept.oid
    UNION
    SELECT up.relid::pg_catalog.oid FROM pg_catalog.pg_partition_ancestors(kept.oid) AS up (relid)
) AS target (oid)
JOIN pg_catalog.pg_constraint AS key ON key.confrelid = target.oid AND key.contype = 'f' AND key.conparentid = 0 AND key.confdeltype IN ('c', 'n', 'd')
JOIN pg_catalog.pg_class AS c ON c.oid = key.conrelid
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
JOIN pg_catalog.pg_class AS above ON above.oid = key.confrelid
JOIN pg_catalog.pg_namespace AS home ON home.oid = above.relnamespace
GROUP BY c.oid, n.nspname, key.oid, home.nspname, above.relname
ORDER BY display, key.conname;
