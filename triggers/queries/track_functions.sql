-- What our triggers on the parents and their partitions run: $1 schemas, $2 tables, $3 schema of the functions.
WITH parents AS (
    SELECT w.ordinal, root.oid
    FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS w (schema_name, table_name, ordinal)
    JOIN pg_namespace AS n ON n.nspname = w.schema_name
    JOIN pg_class AS root ON root.relnamespace = n.oid AND root.relname = w.table_name
),
tables AS (
    SELECT p.ordinal, p.oid FROM parents AS p
    UNION
    SELECT p.ordinal, t.relid FROM parents AS p CROSS JOIN LATERAL pg_partition_tree(p.oid::regclass) AS t
)
SELECT t.ordinal::int - 1 AS parent, t.oid::regclass::text AS display, p.proname::text
FROM tables AS t
JOIN pg_trigger AS tg ON tg.tgrelid = t.oid AND tg.tgname = 'sexton_track' AND NOT tg.tgisinternal
JOIN pg_proc AS p ON p.oid = tg.tgfoid
JOIN pg_namespace AS fn ON fn.oid = p.pronamespace AND fn.nspname = $3::text
ORDER BY t.ordinal, display;
