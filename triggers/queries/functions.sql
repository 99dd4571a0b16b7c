-- Returns the installed functions. $1 is Sexton's schema, $2 the names of the functions,
-- and $3 the schema of the tombstones. The rows are in the order of $2.
SELECT
    p.oid IS NOT NULL AS there,
    coalesce(p.prosecdef AND l.lanname = 'plpgsql' AND p.prorettype = 'pg_catalog.trigger'::pg_catalog.regtype, false) AS shape_matches,
    EXISTS (
        SELECT FROM pg_catalog.aclexplode(coalesce(p.proacl, pg_catalog.acldefault('f', p.proowner))) AS acl
        WHERE acl.grantee = 0) AS public_may_execute,
    coalesce(pg_catalog.has_table_privilege(p.proowner, tombstones.oid, 'INSERT')
        AND pg_catalog.has_function_privilege(p.proowner, pg_catalog.to_regprocedure(pg_catalog.format(
            '%I.is_as_installed(pg_catalog.regclass, pg_catalog.text, pg_catalog.int2[], pg_catalog.text[])', $1::pg_catalog.text)), 'EXECUTE'),
        false) AS owner_may_record,
    coalesce(p.prosrc, '') AS body,
    coalesce(pg_catalog.pg_get_userbyid(p.proowner)::pg_catalog.text, '') AS owner,
    coalesce(p.proconfig, '{}') AS settings
FROM pg_catalog.unnest($2::pg_catalog.text[]) WITH ORDINALITY AS w (name, place)
LEFT JOIN pg_catalog.pg_namespace AS n ON n.nspname = $1::pg_catalog.text
LEFT JOIN pg_catalog.pg_proc AS p ON p.pronamespace = n.oid AND p.proname = w.name AND p.pronargs = 0
LEFT JOIN pg_catalog.pg_language AS l ON l.oid = p.prolang
LEFT JOIN pg_catalog.pg_namespace AS tracked ON tracked.nspname = $3::pg_catalog.text
LEFT JOIN pg_catalog.pg_class AS tombstones
    ON tombstones.relnamespace = tracked.oid AND tombstones.relname = 'loose_foreign_keys_deleted_records'
ORDER BY w.place;
