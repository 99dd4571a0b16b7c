-- Returns the current form of a table, with the columns that can be set. The table is the one with the name $2, or else the one with the OID $1,
-- because tables may have been swapped. Deferrable unique keys are checked by triggers, so they are not checked while triggers are silenced.
SELECT class.oid, class.oid = $1 AS same, pg_catalog.format('%I.%I', namespace.nspname, class.relname) AS name,
    pg_catalog.array_agg(a.attnum ORDER BY a.attnum) AS numbers, pg_catalog.array_agg(a.attname::pg_catalog.text ORDER BY a.attnum) AS columns,
    pg_catalog.array_agg(pg_catalog.format('%I.%I', home.nspname, t.typname) ORDER BY a.attnum) AS types,
    coalesce(pg_catalog.array_agg(pg_catalog.format('%I.%I', home.nspname, t.typname)) FILTER (WHERE t.typtype IN ('c', 'd')), '{}') AS wrapped,
    coalesce((
        SELECT pg_catalog.min(key.conname::pg_catalog.text)
        FROM pg_catalog.pg_constraint AS key
        WHERE key.condeferrable AND key.contype IN ('p', 'u', 'x') AND (key.conrelid OPERATOR(pg_catalog.=) class.oid
            OR key.conrelid IN (SELECT part.relid::pg_catalog.oid FROM pg_catalog.pg_partition_tree(class.oid) AS part))
    ), '') AS deferrable
FROM pg_catalog.pg_class AS class
JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = class.relnamespace
JOIN pg_catalog.pg_attribute AS a ON a.attrelid = class.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
JOIN pg_catalog.pg_type AS t ON t.oid = a.atttypid
JOIN pg_catalog.pg_namespace AS home ON home.oid = t.typnamespace
WHERE class.oid OPERATOR(pg_catalog.=) (
    SELECT known.oid
    FROM pg_catalog.pg_class AS known
    WHERE (known.oid OPERATOR(pg_catalog.=) pg_catalog.to_regclass($2)::pg_catalog.oid OR known.oid OPERATOR(pg_catalog.=) $1) AND known.relkind IN ('r', 'p')
    ORDER BY known.oid OPERATOR(pg_catalog.=) pg_catalog.to_regclass($2)::pg_catalog.oid DESC NULLS LAST
    LIMIT 1
)
GROUP BY class.oid, namespace.nspname, class.relname
