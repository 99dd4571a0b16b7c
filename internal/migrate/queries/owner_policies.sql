-- What the role $1 needs to see all rows of the tables $3 of the application's schema $2: policies bind it, as it may not go past them.
-- A member of the tables' owner is free of them unless they are forced.
SELECT DISTINCT step.text
FROM pg_catalog.pg_class AS class
JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = class.relnamespace AND namespace.nspname = $2::pg_catalog.text
JOIN pg_catalog.pg_roles AS owner ON owner.oid = class.relowner
CROSS JOIN LATERAL (
    SELECT pg_catalog.format('ALTER TABLE %I.%I NO FORCE ROW LEVEL SECURITY', namespace.nspname, class.relname)
    WHERE class.relforcerowsecurity
    UNION ALL
    SELECT CASE
        WHEN owner.rolsuper OR owner.rolbypassrls
        THEN pg_catalog.format('ALTER TABLE %I.%I OWNER TO a_role_without_superuser_and_bypassrls, and GRANT that role TO %I',
            namespace.nspname, class.relname, $1::pg_catalog.text)
        ELSE pg_catalog.format('GRANT %I TO %I', owner.rolname, $1::pg_catalog.text)
    END
    WHERE NOT pg_catalog.pg_has_role($1::pg_catalog.name, class.relowner, 'USAGE')
) AS step (text)
WHERE class.relname = ANY ($3::pg_catalog.text[]) AND class.relkind IN ('r', 'p') AND class.relrowsecurity
ORDER BY step.text;
