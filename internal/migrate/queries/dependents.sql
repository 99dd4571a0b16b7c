-- Returns what is built on the tables of the schema $1, or on those of the schema $2 that $3 names. Views on them are another program's,
-- wherever they live, except Sexton's own ($4).
WITH ours AS (
    SELECT class.oid
    FROM pg_catalog.pg_class AS class
    JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = class.relnamespace
    WHERE namespace.nspname = $1 OR namespace.nspname = $2 AND class.relname = ANY ($3)
), dependent AS (
    SELECT rule.ev_class AS oid
    FROM pg_catalog.pg_depend AS depend
    JOIN pg_catalog.pg_rewrite AS rule ON depend.classid = 'pg_catalog.pg_rewrite'::pg_catalog.regclass AND depend.objid = rule.oid
    WHERE depend.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass AND depend.refobjid IN (SELECT ours.oid FROM ours)
    UNION
    SELECT reference.conrelid
    FROM pg_catalog.pg_constraint AS reference
    WHERE reference.contype = 'f' AND reference.confrelid IN (SELECT ours.oid FROM ours)
)
SELECT pg_catalog.format('%I.%I', namespace.nspname, class.relname)
FROM dependent
JOIN pg_catalog.pg_class AS class ON class.oid = dependent.oid
JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = class.relnamespace
WHERE (class.relkind IN ('v', 'm') OR class.oid NOT IN (SELECT ours.oid FROM ours))
  AND class.oid NOT IN (SELECT view.oid
      FROM pg_catalog.unnest($4::pg_catalog.text[]) AS own (name), pg_catalog.to_regclass(own.name) AS view (oid) WHERE view.oid IS NOT NULL)
ORDER BY 1;
