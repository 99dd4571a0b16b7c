-- The lines that make an index on columns $2 in tables $3 or, if $4, in the whole tree of the partitioned table $1: CREATE INDEX CONCURRENTLY refuses
-- that. There an index on the table alone becomes valid with the last of its partitions' indexes. Names are as Postgres gives them, so that the lines
-- may be run again.
WITH RECURSIVE columns (list, name) AS (
    SELECT pg_catalog.string_agg(pg_catalog.quote_ident(one.name), ', ' ORDER BY one.position), pg_catalog.string_agg(one.name, '_' ORDER BY one.position)
    FROM pg_catalog.unnest($2::pg_catalog.text[]) WITH ORDINALITY AS one (name, position)
),
tree AS (
    SELECT class.oid, class.relkind, class.relname, class.relnamespace, NULL::pg_catalog.oid AS above, ARRAY[]::bigint[] AS position
    FROM pg_catalog.pg_class AS class WHERE $4 AND class.oid = $1
    UNION ALL
    SELECT part.oid, part.relkind, part.relname, part.relnamespace, tree.oid,
        tree.position || pg_catalog.row_number() OVER (ORDER BY part.relname, part.oid)
    FROM tree
    JOIN pg_catalog.pg_inherits AS inherits ON inherits.inhparent = tree.oid AND NOT inherits.inhdetachpending
    JOIN pg_catalog.pg_class AS part ON part.oid = inherits.inhrelid AND part.relispartition AND part.relkind IN ('r', 'p')
),
wanted AS (
    SELECT tree.* FROM tree
    UNION ALL
    SELECT class.oid, 'r', class.relname, class.relnamespace, NULL, ARRAY[lacking.position]
    FROM pg_catalog.unnest($3::pg_catalog.oid[]) WITH ORDINALITY AS lacking (oid, position)
    JOIN pg_catalog.pg_class AS class ON class.oid = lacking.oid
    WHERE NOT $4
),
-- A name has at most 63 bytes, cut between characters.
stem AS (
    SELECT wanted.*, pg_catalog.substr(('_idx' || wanted.relname || '_' || columns.name)::pg_catalog.name::pg_catalog.text, 5) AS stem, columns.name
    FROM wanted CROSS JOIN columns
),
ranked AS (
    SELECT stem.*, pg_catalog.row_number() OVER (PARTITION BY stem.relnamespace, stem.stem ORDER BY stem.position) - 1 AS rank FROM stem
),
named AS (
    SELECT ranked.*, free.name AS index, pg_catalog.format('%I.%I', home.nspname, free.name) AS label, pg_catalog.format('%I.%I', home.nspname, ranked.relname) AS whole
    FROM ranked
    JOIN pg_catalog.pg_namespace AS home ON home.oid = ranked.relnamespace
    CROSS JOIN LATERAL (
        SELECT candidate.name
        FROM pg_catalog.generate_series(0, 10000) AS number (n)
        CROSS JOIN LATERAL (SELECT '_idx' || CASE WHEN number.n > 0 THEN number.n::pg_catalog.text ELSE '' END) AS ending (text)
        CROSS JOIN LATERAL (
            SELECT pg_catalog.substr((ending.text || ranked.relname || '_' || ranked.name)::pg_catalog.name::pg_catalog.text, pg_catalog.length(ending.text) + 1) || ending.text
        ) AS candidate (name)
        WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_class AS taken WHERE taken.relname = candidate.name AND taken.relnamespace = ranked.relnamespace)
        ORDER BY number.n OFFSET ranked.rank LIMIT 1
    ) AS free
),
lines AS (
    SELECT named.position || 0::bigint AS position, pg_catalog.format(
        CASE WHEN named.relkind = 'p' THEN 'CREATE INDEX IF NOT EXISTS %I ON ONLY %s (%s);'
            ELSE 'CREATE INDEX CONCURRENTLY IF NOT EXISTS %I ON %s (%s);' END,
        named.index, named.whole, columns.list) AS line
    FROM named CROSS JOIN columns
    UNION ALL
    SELECT named.position || 10000000000, pg_catalog.format('ALTER INDEX %s ATTACH PARTITION %s;', above.label, named.label)
    FROM named JOIN named AS above ON above.oid = named.above
)
SELECT pg_catalog.string_agg(lines.line, E'\n' ORDER BY lines.position) FROM lines
