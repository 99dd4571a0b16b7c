-- Partitions that lack a trigger which their root has: $1 schemas, $2 tables, $3 schema of the functions.
SELECT EXISTS (
    SELECT
    FROM unnest($1::pg_catalog.text[], $2::pg_catalog.text[]) AS w (schema_name, table_name)
    JOIN pg_catalog.pg_namespace AS n ON n.nspname = w.schema_name
    JOIN pg_catalog.pg_class AS root ON root.relnamespace = n.oid AND root.relname = w.table_name AND root.relkind = 'p'
    JOIN pg_catalog.pg_trigger AS model
        ON model.tgrelid = root.oid AND model.tgname IN ('sexton_track', 'sexton_truncate') AND NOT model.tgisinternal
    JOIN pg_catalog.pg_proc AS p ON p.oid = model.tgfoid
    JOIN pg_catalog.pg_namespace AS fn ON fn.oid = p.pronamespace AND fn.nspname = $3::pg_catalog.text
    CROSS JOIN LATERAL pg_catalog.pg_partition_tree(root.oid::pg_catalog.regclass) AS t
    WHERE NOT EXISTS (
        SELECT FROM pg_catalog.pg_trigger AS tg WHERE tg.tgrelid = t.relid AND tg.tgname = model.tgname)
);
