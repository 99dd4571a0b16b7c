-- Returns the prerequisites of an installation. $1 is Sexton's schema, and $2 the schema
-- of the tombstones. owner is the role that the functions will belong to: the owner of
-- the schema if the current role is a member, or else the current role.
SELECT
    current_user::pg_catalog.text,
    coalesce(pg_catalog.has_schema_privilege(jobs.oid, 'CREATE'), false) AS may_create,
    jobs.oid IS NOT NULL AS has_schema,
    tombstones.oid IS NOT NULL AS has_tombstones,
    owner.name AS owner,
    coalesce(pg_catalog.has_schema_privilege(owner.name, tracked.oid, 'USAGE')
        AND pg_catalog.has_table_privilege(owner.name, tombstones.oid, 'INSERT'), false) AS may_insert,
    installed.function IS NOT NULL AS has_function,
    coalesce(pg_catalog.has_function_privilege(owner.name, installed.function, 'EXECUTE'), false) AS may_execute
FROM (VALUES (1)) AS one
LEFT JOIN pg_catalog.pg_namespace AS jobs ON jobs.nspname = $1::pg_catalog.text
LEFT JOIN pg_catalog.pg_namespace AS tracked ON tracked.nspname = $2::pg_catalog.text
LEFT JOIN pg_catalog.pg_class AS tombstones
    ON tombstones.relnamespace = tracked.oid
    AND tombstones.relname = 'loose_foreign_keys_deleted_records'
    AND tombstones.relkind IN ('r', 'p')
CROSS JOIN LATERAL (
    SELECT CASE WHEN pg_catalog.pg_has_role(jobs.nspowner, 'MEMBER') THEN pg_catalog.pg_get_userbyid(jobs.nspowner) ELSE current_user END
) AS owner (name)
CROSS JOIN LATERAL pg_catalog.to_regprocedure(pg_catalog.format(
    '%I.is_as_installed(pg_catalog.regclass, pg_catalog.text, pg_catalog.int2[], pg_catalog.text[])', $1::pg_catalog.text)) AS installed (function);
