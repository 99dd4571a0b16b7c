-- Returns the relations of the schema sexton and the tables $2 of the tracked schema
-- ($1). Tables with these names and Sexton's comment in other schemas are also returned.
-- Each relation has its columns and their types.
SELECT namespace.nspname::pg_catalog.text, class.relname::pg_catalog.text, class.relkind::pg_catalog.text, coalesce(description.text, ''),
    ARRAY(SELECT column_.attname::pg_catalog.text FROM pg_catalog.pg_attribute AS column_
        WHERE column_.attrelid = class.oid AND column_.attnum > 0 AND NOT column_.attisdropped ORDER BY column_.attnum),
    ARRAY(SELECT pg_catalog.format_type(column_.atttypid, NULL) FROM pg_catalog.pg_attribute AS column_
        WHERE column_.attrelid = class.oid AND column_.attnum > 0 AND NOT column_.attisdropped ORDER BY column_.attnum)
FROM pg_catalog.pg_class AS class
JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = class.relnamespace
CROSS JOIN LATERAL pg_catalog.obj_description(class.oid, 'pg_class') AS description (text)
WHERE namespace.nspname = 'sexton'
   OR class.relname = ANY ($2::pg_catalog.text[])
      AND (namespace.nspname = $1 OR pg_catalog.starts_with(description.text, 'Sexton:'));
