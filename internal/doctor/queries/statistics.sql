-- Returns the role $1 (empty: the current role) if it cannot see the transactions of
-- other roles. $2 is true if no worker is known to use the role. Then the query returns
-- no row for the owner of Sexton's schema, or if that schema does not exist.
SELECT pg_catalog.format('%I', role.rolname)
FROM pg_catalog.pg_roles AS role
WHERE role.rolname = CASE $1::pg_catalog.text WHEN '' THEN current_user ELSE $1 END
  AND NOT pg_catalog.pg_has_role(role.oid, 'pg_read_all_stats', 'USAGE')
  AND (NOT $2::boolean OR EXISTS (
      SELECT FROM pg_catalog.pg_namespace AS own WHERE own.nspname = 'sexton' AND NOT pg_catalog.pg_has_role(role.oid, own.nspowner, 'USAGE')
  ));
