-- The functions of this installation as they stand: $1 is the schema of Sexton's own tables, $2 the
-- names that are looked for.
SELECT
    p.proname::text,
    p.prosrc,
    coalesce(p.proconfig, '{}') AS settings,
    p.prosecdef AND l.lanname = 'plpgsql' AND p.prorettype = 'trigger'::regtype AND p.pronargs = 0 AS shape_matches,
    EXISTS (
        SELECT FROM aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS acl
        WHERE acl.grantee = 0) AS public_may_execute,
    coalesce(has_table_privilege(p.proowner, tombstones.oid, 'INSERT'), false) AS owner_may_insert,
    pg_get_userbyid(p.proowner)::text AS owner
FROM pg_proc AS p
JOIN pg_namespace AS n ON n.oid = p.pronamespace
JOIN pg_language AS l ON l.oid = p.prolang
JOIN pg_namespace AS tracked ON tracked.nspname = $3::text
LEFT JOIN pg_class AS tombstones
    ON tombstones.relnamespace = tracked.oid AND tombstones.relname = 'loose_foreign_keys_deleted_records'
WHERE n.nspname = $1::text AND p.proname = ANY ($2::text[]) AND p.pronargs = 0;
