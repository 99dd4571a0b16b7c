-- Returns other roles than $1 that own the schema sexton or SECURITY DEFINER functions in
-- it, and reports for each role whether it bypasses row security.
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
