-- Returns the role $1 (empty: the current role) if it cannot see other roles' transactions. If $2 is true, no worker is known to use the role: then
-- the owner of Sexton's schema, and any role before the installation, are not returned.
SELECT pg_catalog.format('%I', role.rolname)
FROM pg_catalog.pg_roles AS role
WHERE role.rolname = CASE $1::pg_catalog.text WHEN '' THEN current_user ELSE $1 END
  AND NOT pg_catalog.pg_has_role(role.oid, 'pg_read_all_stats', 'USAGE')
  AND (NOT $2::boolean OR EXISTS (
      SELECT FROM pg_catalog.pg_namespace AS own WHERE own.nspname = 'sexton' AND NOT pg_catalog.pg_has_role(role.oid, own.nspowner, 'USAGE')
  ));
