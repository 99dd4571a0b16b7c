SELECT pg_catalog.format('constraint %I of %I.%I', checked.conname, namespace.nspname, class.relname),
    pg_catalog.pg_get_expr(checked.conbin, checked.conrelid)
FROM pg_catalog.pg_constraint AS checked
JOIN pg_catalog.pg_class AS class ON class.oid = checked.conrelid
JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = class.relnamespace
WHERE checked.contype = 'c'
AND coalesce((pg_catalog.to_jsonb(checked) -> 'conenforced')::pg_catalog.bool, true) -- Since Postgres 18.
AND checked.conrelid = ANY ($1)
AND checked.conkey <@ ARRAY(
    SELECT attribute.attnum FROM pg_catalog.pg_attribute AS attribute
    WHERE attribute.attrelid = checked.conrelid AND attribute.attname = ANY ($2::pg_catalog.text[])
)
UNION ALL
SELECT pg_catalog.format('%I.%I', namespace.nspname, class.relname), pg_catalog.format('%I IS NOT NULL', attribute.attname)
FROM pg_catalog.pg_attribute AS attribute
JOIN pg_catalog.pg_class AS class ON class.oid = attribute.attrelid
JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = class.relnamespace
WHERE attribute.attnotnull AND attribute.attrelid = ANY ($1) AND attribute.attname = ANY ($2::pg_catalog.text[])
ORDER BY 1
