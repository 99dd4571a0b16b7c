-- Returns statements that drop Sexton's objects in the tracked schema ($1): the tables
-- among $2 with a comment that begins with "Sexton:", and the columns and indexes of
-- other tables with such a comment.
WITH shared AS (
    SELECT class.oid, pg_catalog.format('%I.%I', namespace.nspname, class.relname) AS name,
        coalesce(pg_catalog.starts_with(pg_catalog.obj_description(class.oid, 'pg_class'), 'Sexton:'), false) AS own
    FROM pg_catalog.pg_class AS class
    JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = class.relnamespace
    WHERE namespace.nspname = $1 AND class.relname = ANY ($2::pg_catalog.text[]) AND class.relkind IN ('r', 'p')
)
SELECT 'DROP TABLE ' || shared.name FROM shared WHERE shared.own
UNION ALL
SELECT pg_catalog.format('DROP INDEX %I.%I', $1, index.relname)
FROM shared
JOIN pg_catalog.pg_index AS entry ON entry.indrelid = shared.oid
JOIN pg_catalog.pg_class AS index ON index.oid = entry.indexrelid
WHERE NOT shared.own AND pg_catalog.starts_with(pg_catalog.obj_description(index.oid, 'pg_class'), 'Sexton:')
UNION ALL
SELECT pg_catalog.format('ALTER TABLE %s DROP COLUMN %I', shared.name, column_.attname)
FROM shared
JOIN pg_catalog.pg_attribute AS column_ ON column_.attrelid = shared.oid AND column_.attnum > 0 AND NOT column_.attisdropped
WHERE NOT shared.own AND pg_catalog.starts_with(pg_catalog.col_description(shared.oid, column_.attnum), 'Sexton:');
