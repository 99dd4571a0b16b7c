-- Returns the indexes of the tables $1. The predicate of a partial index is returned only
-- if it consists of IS NOT NULL conditions on columns, which the server stores as
-- NULLTEST nodes. Any other predicate is '?'. pg_get_expr would print any predicate, but
-- it locks the table and waits for the locks of other sessions.
SELECT index.indrelid, index.indisprimary, index.indisunique, NOT index.indimmediate, index.indisvalid,
    CASE WHEN index.indpred IS NULL THEN ''
    WHEN pg_catalog.regexp_replace(index.indpred::pg_catalog.text, not_null.node, '', 'g')
        ~ E'^({BOOLEXPR :boolop and :args \\( *\\) :location -?[0-9]+})?$' THEN (
        SELECT pg_catalog.string_agg(pg_catalog.format('(%I IS NOT NULL)', attribute.attname), ' AND ' ORDER BY attribute.attnum)
        FROM pg_catalog.regexp_matches(index.indpred::pg_catalog.text, not_null.node, 'g') AS column_of (number)
        JOIN pg_catalog.pg_attribute AS attribute ON attribute.attrelid = index.indrelid AND attribute.attnum = column_of.number[1]::smallint
    ) ELSE '?' END,
    class.relname, pg_catalog.format('%s.%I', class.relnamespace::pg_catalog.regnamespace, class.relname), method.amname,
    ARRAY(
        SELECT coalesce(attribute.attname, '')::pg_catalog.text
        FROM pg_catalog.unnest(index.indkey::smallint[]) WITH ORDINALITY AS key (number, position)
        LEFT JOIN pg_catalog.pg_attribute AS attribute ON attribute.attrelid = index.indrelid AND attribute.attnum = key.number
        WHERE key.position <= index.indnkeyatts
        ORDER BY key.position
    ),
    order_by.families, order_by.inputs, order_by.collations, order_by.loose
FROM pg_catalog.pg_index AS index
CROSS JOIN (VALUES ('{NULLTEST :arg {VAR :varno 1 :varattno ([0-9]+) [^{}]*} :nulltesttype 1 [^{}]*}')) AS not_null (node)
JOIN pg_catalog.pg_class AS class ON class.oid = index.indexrelid
JOIN pg_catalog.pg_am AS method ON method.oid = class.relam
CROSS JOIN LATERAL (
    SELECT pg_catalog.array_agg(pg_catalog.format('%s.%I', family.opfnamespace::pg_catalog.regnamespace, family.opfname) ORDER BY key.position) AS families,
        pg_catalog.array_agg(pg_catalog.format('%s.%I', type.typnamespace::pg_catalog.regnamespace, type.typname) ORDER BY key.position) AS inputs,
        pg_catalog.array_agg(CASE WHEN rule.oid IS NULL THEN '' ELSE pg_catalog.format('%s.%I', rule.collnamespace::pg_catalog.regnamespace, rule.collname) END
            ORDER BY key.position) AS collations,
        pg_catalog.array_agg(rule.oid IS NOT NULL AND NOT rule.collisdeterministic ORDER BY key.position) AS loose
    FROM ROWS FROM (pg_catalog.unnest(index.indclass::pg_catalog.oid[]), pg_catalog.unnest(index.indcollation::pg_catalog.oid[]))
        WITH ORDINALITY AS key (class, rule, position)
    JOIN pg_catalog.pg_opclass AS class ON class.oid = key.class
    JOIN pg_catalog.pg_type AS type ON type.oid = class.opcintype
    JOIN pg_catalog.pg_opfamily AS family ON family.oid = class.opcfamily
    LEFT JOIN pg_catalog.pg_collation AS rule ON rule.oid = key.rule
) AS order_by
WHERE index.indrelid = ANY ($1)
ORDER BY index.indexrelid
