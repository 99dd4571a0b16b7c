-- Returns the foreign keys of a table and its partitions, with the operators that compare the referenced columns with the referencing columns, and
-- whether the role may lock referenced rows. Copies of a key in partitions are left out. only is true if the referenced table is not partitioned,
-- because the server then ignores rows of tables that inherit from it.
-- A LATERAL subquery reads the columns, because a join of all tables would take several milliseconds to plan.
WITH tree AS (
    SELECT $1::pg_catalog.oid AS oid
    UNION
    SELECT part.relid FROM pg_catalog.pg_partition_tree($1::pg_catalog.oid) AS part
)
SELECT key.conname::pg_catalog.text AS name, pg_catalog.format('%s.%I', source.relnamespace::pg_catalog.regnamespace, source.relname) AS source,
    pg_catalog.format('%s.%I', target.relnamespace::pg_catalog.regnamespace, target.relname) AS target, target.oid AS other, target.relkind <> 'p' AS only,
    pair.columns, pair.others, pair.operators,
    pg_catalog.has_any_column_privilege(target.oid, 'UPDATE') AS lockable, key.confmatchtype = 'f' AS match_full
FROM pg_catalog.pg_constraint AS key
JOIN pg_catalog.pg_class AS source ON source.oid = key.conrelid
JOIN pg_catalog.pg_class AS target ON target.oid = key.confrelid
CROSS JOIN LATERAL (
    SELECT pg_catalog.array_agg(own.attname::pg_catalog.text ORDER BY place.at) AS columns,
        pg_catalog.array_agg(other.attname::pg_catalog.text ORDER BY place.at) AS others,
        pg_catalog.array_agg(pg_catalog.format('OPERATOR(%s.%s)', operator.oprnamespace::pg_catalog.regnamespace, operator.oprname) ORDER BY place.at)
            AS operators
    FROM ROWS FROM (pg_catalog.unnest(key.conkey), pg_catalog.unnest(key.confkey), pg_catalog.unnest(key.conpfeqop)) WITH ORDINALITY
        AS place (own, other, operator, at)
    JOIN pg_catalog.pg_attribute AS own ON own.attrelid = key.conrelid AND own.attnum = place.own
    JOIN pg_catalog.pg_attribute AS other ON other.attrelid = key.confrelid AND other.attnum = place.other
    JOIN pg_catalog.pg_operator AS operator ON operator.oid = place.operator
) AS pair
WHERE key.contype = 'f' AND key.conrelid IN (SELECT tree.oid FROM tree) AND NOT EXISTS (
    SELECT FROM pg_catalog.pg_constraint AS above
    WHERE above.oid = key.conparentid AND above.conrelid IN (SELECT tree.oid FROM tree)
)
ORDER BY key.oid
