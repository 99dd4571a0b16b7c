-- Returns the privileges that the role $5 lacks, or the current role if $5 is empty. Row-level security has a separate
-- column, since no GRANT changes it.
WITH role AS (
    SELECT role.rolname, role.rolsuper OR role.rolbypassrls AS unrestricted
    FROM pg_catalog.pg_roles AS role
    WHERE role.rolname = CASE $5::pg_catalog.text WHEN '' THEN current_user ELSE $5 END
), judged AS (
    SELECT wanted.*, CASE
        WHEN wanted.name <> '' THEN pg_catalog.has_column_privilege(role.rolname, wanted.oid, wanted.name, wanted.privilege)
        WHEN wanted.privilege = 'UPDATE' THEN pg_catalog.has_any_column_privilege(role.rolname, wanted.oid, 'UPDATE')
        ELSE pg_catalog.has_table_privilege(role.rolname, wanted.oid, wanted.privilege)
    END AS granted, CASE
        WHEN wanted.privilege = 'SELECT' AND wanted.name <> '' THEN pg_catalog.format('SELECT (%I)', wanted.name)
        ELSE wanted.privilege
    END AS label
    FROM role, unnest($1::pg_catalog.int8[], $2::pg_catalog.oid[], $3::pg_catalog.text[], $4::pg_catalog.text[])
        WITH ORDINALITY AS wanted (by, oid, privilege, name, position)
), grouped AS (
    SELECT judged.by, class.oid, class.relname, namespace.nspname, role.rolname,
        pg_catalog.has_schema_privilege(role.rolname, class.relnamespace, 'USAGE') AS usage,
        coalesce(pg_catalog.array_agg(DISTINCT judged.label ORDER BY judged.label) FILTER (WHERE NOT judged.granted), '{}') AS missing,
        class.relrowsecurity AND NOT role.unrestricted AND (class.relforcerowsecurity OR NOT pg_catalog.pg_has_role(role.rolname, class.relowner, 'USAGE')) AS hidden,
        pg_catalog.min(judged.position) AS position
    FROM role, judged
    JOIN pg_catalog.pg_class AS class ON class.oid = judged.oid
    JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = class.relnamespace
    GROUP BY judged.by, class.oid, class.relname, class.relnamespace, class.relrowsecurity, class.relforcerowsecurity, class.relowner,
        namespace.nspname, role.rolname, role.unrestricted
)
SELECT grouped.by, pg_catalog.format('%I.%I', grouped.nspname, grouped.relname), pg_catalog.format('%I', grouped.rolname),
    CASE WHEN grouped.usage THEN '' ELSE pg_catalog.format('%I', grouped.nspname) END, grouped.missing, grouped.hidden
FROM grouped
WHERE NOT grouped.usage OR grouped.missing <> '{}' OR grouped.hidden
ORDER BY grouped.position
