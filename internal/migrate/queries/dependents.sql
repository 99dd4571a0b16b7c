-- Returns other objects that depend on the schema sexton, or on Sexton's tables among the
-- tables $2 of the tracked schema ($1): views, foreign keys, tables and functions.
-- Sexton's triggers on the application's tables are left out.
WITH own AS (
    SELECT 'pg_catalog.pg_namespace'::pg_catalog.regclass::pg_catalog.oid AS classid, namespace.oid
    FROM pg_catalog.pg_namespace AS namespace WHERE namespace.nspname = 'sexton'
    UNION ALL
    SELECT 'pg_catalog.pg_class'::pg_catalog.regclass::pg_catalog.oid, class.oid
    FROM pg_catalog.pg_class AS class
    JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = class.relnamespace
    WHERE namespace.nspname = 'sexton'
       OR namespace.nspname = $1 AND class.relname = ANY ($2::pg_catalog.text[])
          AND pg_catalog.starts_with(pg_catalog.obj_description(class.oid, 'pg_class'), 'Sexton:')
    UNION ALL
    SELECT 'pg_catalog.pg_proc'::pg_catalog.regclass::pg_catalog.oid, proc.oid
    FROM pg_catalog.pg_proc AS proc WHERE proc.pronamespace = pg_catalog.to_regnamespace('sexton')
    UNION ALL
    SELECT 'pg_catalog.pg_type'::pg_catalog.regclass::pg_catalog.oid, type.oid
    FROM pg_catalog.pg_type AS type WHERE type.typnamespace = pg_catalog.to_regnamespace('sexton')
), dependent AS (
    SELECT depend.classid, depend.objid,
        CASE depend.classid
            WHEN 'pg_catalog.pg_class'::pg_catalog.regclass::pg_catalog.oid THEN (
                SELECT coalesce(index.indrelid, owned.refobjid, class.oid)
                FROM pg_catalog.pg_class AS class
                LEFT JOIN pg_catalog.pg_index AS index ON index.indexrelid = class.oid
                LEFT JOIN pg_catalog.pg_depend AS owned ON class.relkind = 'S' AND owned.objid = class.oid AND owned.deptype IN ('a', 'i')
                    AND owned.classid = depend.classid AND owned.refclassid = depend.classid
                WHERE class.oid = depend.objid)
            WHEN 'pg_catalog.pg_rewrite'::pg_catalog.regclass::pg_catalog.oid THEN (SELECT rule.ev_class FROM pg_catalog.pg_rewrite AS rule WHERE rule.oid = depend.objid)
            WHEN 'pg_catalog.pg_constraint'::pg_catalog.regclass::pg_catalog.oid THEN (
                SELECT c.conrelid FROM pg_catalog.pg_constraint AS c WHERE c.oid = depend.objid)
            WHEN 'pg_catalog.pg_attrdef'::pg_catalog.regclass::pg_catalog.oid THEN (SELECT d.adrelid FROM pg_catalog.pg_attrdef AS d WHERE d.oid = depend.objid)
            WHEN 'pg_catalog.pg_policy'::pg_catalog.regclass::pg_catalog.oid THEN (SELECT p.polrelid FROM pg_catalog.pg_policy AS p WHERE p.oid = depend.objid)
            WHEN 'pg_catalog.pg_trigger'::pg_catalog.regclass::pg_catalog.oid THEN (
                SELECT t.tgrelid FROM pg_catalog.pg_trigger AS t
                WHERE t.oid = depend.objid AND NOT t.tgisinternal AND NOT pg_catalog.starts_with(t.tgname, 'sexton_'))
        END AS relation
    FROM own
    JOIN pg_catalog.pg_depend AS depend ON depend.refclassid = own.classid AND depend.refobjid = own.oid
)
SELECT DISTINCT (CASE
    WHEN dependent.relation IS NOT NULL THEN pg_catalog.format('%I.%I', namespace.nspname, class.relname)
    ELSE dependent.objid::pg_catalog.regprocedure::pg_catalog.text
END)
FROM dependent
LEFT JOIN pg_catalog.pg_class AS class ON class.oid = dependent.relation
LEFT JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = class.relnamespace
WHERE (dependent.relation IS NOT NULL OR dependent.classid = 'pg_catalog.pg_proc'::pg_catalog.regclass::pg_catalog.oid)
  AND NOT EXISTS (SELECT FROM own WHERE own.classid = 'pg_catalog.pg_class'::pg_catalog.regclass::pg_catalog.oid AND own.oid = dependent.relation)
  AND NOT EXISTS (SELECT FROM own WHERE own.classid = dependent.classid AND own.oid = dependent.objid)
  AND coalesce(class.relkind <> 't' AND namespace.nspname <> 'pg_toast', true)
ORDER BY 1;
