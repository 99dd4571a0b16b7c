-- Reports whether the owner's role $1 has dangerous privileges, and whether the current
-- role may make it the owner of objects. Returns no row if the role $1 does not exist.
SELECT
    EXISTS (
        SELECT
        FROM pg_catalog.pg_roles AS above
        WHERE (above.rolsuper OR above.rolbypassrls OR above.rolname = ANY (ARRAY['pg_execute_server_program', 'pg_write_server_files']))
          AND pg_catalog.pg_has_role(owner.oid, above.oid, 'MEMBER')
    ) AS powerful,
    pg_catalog.pg_has_role(owner.oid, 'MEMBER') AND pg_catalog.pg_has_role(owner.oid, 'USAGE') AS member
FROM pg_catalog.pg_roles AS owner
WHERE owner.rolname = $1::pg_catalog.text;
