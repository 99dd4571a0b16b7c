-- Domains may be built on domains. Partitions are read from pg_inherits: pg_partition_tree waits where one of them is locked.
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
    class.relkind OPERATOR(pg_catalog.=) 'p' AND EXISTS (
        WITH RECURSIVE tree AS (
            SELECT class.oid AS relid
            UNION ALL
            SELECT part.oid
            FROM tree
            JOIN pg_catalog.pg_inherits AS below ON below.inhparent OPERATOR(pg_catalog.=) tree.relid
            JOIN pg_catalog.pg_class AS part ON part.oid OPERATOR(pg_catalog.=) below.inhrelid AND part.relkind OPERATOR(pg_catalog.=) 'p'
        )
        SELECT FROM tree
        JOIN pg_catalog.pg_attribute AS part ON part.attrelid OPERATOR(pg_catalog.=) tree.relid AND part.attname OPERATOR(pg_catalog.=) attribute.attname
        JOIN pg_catalog.pg_depend AS held ON held.classid OPERATOR(pg_catalog.=) 1259::pg_catalog.oid AND held.objid OPERATOR(pg_catalog.=) tree.relid
            AND held.objsubid OPERATOR(pg_catalog.=) part.attnum::pg_catalog.int4 AND held.refclassid OPERATOR(pg_catalog.=) 1259::pg_catalog.oid
            AND held.refobjid OPERATOR(pg_catalog.=) tree.relid AND held.refobjsubid OPERATOR(pg_catalog.=) 0 AND held.deptype OPERATOR(pg_catalog.=) 'i'
    ),
    attribute.atthasdef OR attribute.attidentity <> '',
    attribute.atttypid OPERATOR(pg_catalog.<>) type.oid,
    CASE WHEN type.typtype OPERATOR(pg_catalog.=) 'e' THEN 'pg_catalog.anyenum' WHEN type.typtype OPERATOR(pg_catalog.=) 'r' THEN 'pg_catalog.anyrange'
        WHEN type.typtype OPERATOR(pg_catalog.=) 'm' THEN 'pg_catalog.anymultirange' WHEN type.typtype OPERATOR(pg_catalog.=) 'c' THEN 'pg_catalog.record'
        WHEN type.typelem OPERATOR(pg_catalog.<>) 0::pg_catalog.oid AND type.typlen OPERATOR(pg_catalog.=) (-1)::pg_catalog.int2
            AND type.typcategory OPERATOR(pg_catalog.=) 'A' THEN 'pg_catalog.anyarray' ELSE '' END,
    CASE WHEN rule.oid IS NULL THEN '' ELSE pg_catalog.format('%s.%I', rule.collnamespace::pg_catalog.regnamespace, rule.collname) END,
    rule.oid IS NOT NULL AND NOT rule.collisdeterministic
FROM base
JOIN pg_catalog.pg_class AS class ON class.oid OPERATOR(pg_catalog.=) base.attrelid
JOIN pg_catalog.pg_attribute AS attribute ON attribute.attrelid = base.attrelid AND attribute.attnum = base.attnum
JOIN pg_catalog.pg_type AS type ON type.oid = base.oid
LEFT JOIN pg_catalog.pg_collation AS rule ON rule.oid OPERATOR(pg_catalog.=) attribute.attcollation
WHERE base.typtype <> 'd';
