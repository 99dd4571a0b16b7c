-- Row-level security is asked for apart, as no grant helps against it.
WITH judged AS (
    SELECT wanted.*, CASE
        WHEN wanted.privilege <> 'UPDATE' THEN pg_catalog.has_table_privilege(wanted.oid, wanted.privilege)
        WHEN wanted.name = '' THEN pg_catalog.has_any_column_privilege(wanted.oid, 'UPDATE')
        ELSE pg_catalog.has_column_privilege(wanted.oid, wanted.name, 'UPDATE')
    END AS granted
    FROM unnest($1::pg_catalog.int8[], $2::pg_catalog.oid[], $3::pg_catalog.text[], $4::pg_catalog.text[])
        WITH ORDINALITY AS wanted (by, oid, privilege, name, position)
), looked AS (
    SELECT judged.by, class.oid, class.relname, namespace.nspname, pg_catalog.has_schema_privilege(class.relnamespace, 'USAGE') AS usage,
        coalesce(pg_catalog.array_agg(DISTINCT judged.privilege ORDER BY judged.privilege) FILTER (WHERE NOT judged.granted), '{}') AS missing,
        pg_catalog.row_security_active(class.oid) AS hidden, pg_catalog.min(judged.position) AS position
    FROM judged
    JOIN pg_catalog.pg_class AS class ON class.oid = judged.oid
    JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = class.relnamespace
    GROUP BY judged.by, class.oid, class.relname, class.relnamespace, namespace.nspname
)
SELECT looked.by, pg_catalog.format('%I.%I', looked.nspname, looked.relname), pg_catalog.format('%I', current_user),
    CASE WHEN looked.usage THEN '' ELSE pg_catalog.format('%I', looked.nspname) END, looked.missing, looked.hidden
FROM looked
WHERE NOT looked.usage OR looked.missing <> '{}' OR looked.hidden
ORDER BY looked.position
