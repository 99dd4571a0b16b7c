-- The sequences of columns of Sexton's tables, in the schema sexton and among the tables $2 of the tracked schema ($1): sequence, table and column.
-- Without the ones on which the role lacks the privilege $3.
SELECT pg_catalog.format('%I.%I', space.nspname, sequence.relname), pg_catalog.format('%I.%I', namespace.nspname, class.relname),
    pg_catalog.quote_ident(column_.attname)
FROM pg_catalog.pg_class AS class
JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = class.relnamespace
JOIN pg_catalog.pg_depend AS depend
    ON depend.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass::pg_catalog.oid AND depend.refobjid = class.oid
    AND depend.classid = 'pg_catalog.pg_class'::pg_catalog.regclass::pg_catalog.oid AND depend.deptype IN ('a', 'i')
JOIN pg_catalog.pg_class AS sequence ON sequence.oid = depend.objid AND sequence.relkind = 'S'
JOIN pg_catalog.pg_namespace AS space ON space.oid = sequence.relnamespace
JOIN pg_catalog.pg_attribute AS column_ ON column_.attrelid = class.oid AND column_.attnum = depend.refobjsubid
WHERE class.relkind IN ('r', 'p')
  AND (namespace.nspname = 'sexton'
    OR namespace.nspname = $1 AND class.relname = ANY ($2::pg_catalog.text[])
       AND pg_catalog.starts_with(pg_catalog.obj_description(class.oid, 'pg_class'), 'Sexton:'))
  AND CASE WHEN pg_catalog.has_schema_privilege(space.oid, 'USAGE')
      THEN pg_catalog.has_table_privilege(class.oid, 'SELECT') AND pg_catalog.has_sequence_privilege(sequence.oid, 'SELECT')
          AND pg_catalog.has_sequence_privilege(sequence.oid, $3)
      ELSE false END
ORDER BY 1;
