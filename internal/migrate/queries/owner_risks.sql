-- Roles that own SECURITY DEFINER functions in the schema sexton, or the schema, other than $1, and whether they go past row security.
SELECT
    owner.rolname::pg_catalog.text,
    owner.rolsuper OR owner.rolbypassrls
FROM pg_catalog.pg_namespace AS namespace
JOIN pg_catalog.pg_roles AS owner
    ON owner.oid = namespace.nspowner
    OR EXISTS (
        SELECT
        FROM pg_catalog.pg_proc AS proc
        WHERE proc.pronamespace = namespace.oid AND proc.prosecdef AND proc.proowner = owner.oid
    )
WHERE namespace.nspname = 'sexton' AND owner.rolname <> $1::pg_catalog.text
ORDER BY owner.rolname;
