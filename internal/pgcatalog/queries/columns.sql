-- Returns the columns of the relations $1. The recursion resolves domains, because a
-- domain may be based on another domain. The query reads partitions from pg_inherits,
-- because pg_partition_tree waits for locks of other sessions.
WITH RECURSIVE base AS (
    SELECT attribute.attrelid, attribute.attnum, type.oid, type.typtype, type.typbasetype
    FROM pg_catalog.pg_attribute AS attribute
    JOIN pg_catalog.pg_type AS type ON type.oid = attribute.atttypid
    WHERE attribute.attrelid = ANY ($1) AND attribute.attnum > 0 AND NOT attribute.attisdropped
    UNION ALL
    SELECT base.attrelid, base.attnum, type.oid, type.typtype, type.typbasetype
    FROM base
    JOIN pg_catalog.pg_type AS type ON type.oid = base.typbasetype
    WHERE base.typtype = 'd'
)
SELECT base.attrelid, attribute.attname, pg_catalog.format_type(attribute.atttypid, attribute.atttypmod),
    pg_catalog.format('%s.%I', type.typnamespace::pg_catalog.regnamespace, type.typname),
    attribute.attnotnull, attribute.attgenerated <> '' OR attribute.attidentity = 'a',
    class.relkind = 'p' AND EXISTS (
        WITH RECURSIVE tree AS (
            SELECT class.oid AS relid
            UNION ALL
            SELECT part.oid
            FROM tree
            JOIN pg_catalog.pg_inherits AS below ON below.inhparent = tree.relid
            JOIN pg_catalog.pg_class AS part ON part.oid = below.inhrelid AND part.relkind = 'p'
        )
        SELECT FROM tree
        JOIN pg_catalog.pg_attribute AS part ON part.attrelid = tree.relid AND part.attname = attribute.attname
        JOIN pg_catalog.pg_depend AS held ON held.classid = 1259::pg_catalog.oid AND held.objid = tree.relid
            AND held.objsubid = part.attnum::pg_catalog.int4 AND held.refclassid = 1259::pg_catalog.oid
            AND held.refobjid = tree.relid AND held.refobjsubid = 0 AND held.deptype = 'i'
    ),
    attribute.atthasdef OR attribute.attidentity <> '',
    attribute.atttypid <> type.oid,
    CASE WHEN type.typtype = 'e' THEN 'pg_catalog.anyenum' WHEN type.typtype = 'r' THEN 'pg_catalog.anyrange'
        WHEN type.typtype = 'm' THEN 'pg_catalog.anymultirange' WHEN type.typtype = 'c' THEN 'pg_catalog.record'
        WHEN type.typelem <> 0::pg_catalog.oid AND type.typlen = (-1)::pg_catalog.int2
            AND type.typcategory = 'A' THEN 'pg_catalog.anyarray' ELSE '' END,
    CASE WHEN rule.oid IS NULL THEN '' ELSE pg_catalog.format('%s.%I', rule.collnamespace::pg_catalog.regnamespace, rule.collname) END,
    rule.oid IS NOT NULL AND NOT rule.collisdeterministic
FROM base
JOIN pg_catalog.pg_class AS class ON class.oid = base.attrelid
JOIN pg_catalog.pg_attribute AS attribute ON attribute.attrelid = base.attrelid AND attribute.attnum = base.attnum
JOIN pg_catalog.pg_type AS type ON type.oid = base.oid
LEFT JOIN pg_catalog.pg_collation AS rule ON rule.oid = attribute.attcollation
WHERE base.typtype <> 'd';
