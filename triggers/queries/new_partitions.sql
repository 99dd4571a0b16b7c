-- Reports whether partitions lack a trigger that their root has. $1 has the schemas of
-- the roots and $2, in the same order, their names. $3 is the schema of the functions.
WITH RECURSIVE tree AS (
    SELECT root.oid AS relid, model.tgname
    FROM unnest($1::pg_catalog.text[], $2::pg_catalog.text[]) AS w (schema_name, table_name)
    JOIN pg_catalog.pg_namespace AS n ON n.nspname = w.schema_name
    JOIN pg_catalog.pg_class AS root ON root.relnamespace = n.oid AND root.relname = w.table_name AND root.relkind = 'p'
    JOIN pg_catalog.pg_trigger AS model
        ON model.tgrelid = root.oid AND model.tgname IN ('sexton_track', 'sexton_truncate') AND NOT model.tgisinternal
    JOIN pg_catalog.pg_proc AS p ON p.oid = model.tgfoid
    JOIN pg_catalog.pg_namespace AS fn ON fn.oid = p.pronamespace AND fn.nspname = $3::pg_catalog.text
    UNION ALL
    SELECT below.inhrelid, tree.tgname
    FROM tree
    JOIN pg_catalog.pg_inherits AS below ON below.inhparent = tree.relid
)
SELECT EXISTS (
    SELECT
    FROM tree
    WHERE NOT EXISTS (
        SELECT FROM pg_catalog.pg_trigger AS tg WHERE tg.tgrelid = tree.relid AND tg.tgname = tree.tgname)
);
