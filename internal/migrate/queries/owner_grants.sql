-- The rights that the role $1 lacks on tables ($3, with the privileges $4 beside them) of the application's schema $2, and on Sexton's
-- schema $5: what for, the object, and the privileges. Only plain tables count: a view would run its own code with the role's rights.
WITH wanted AS (
    SELECT class.oid, class.relname, namespace.nspname, wanted.privilege
    FROM ROWS FROM (pg_catalog.unnest($3::pg_catalog.text[]), pg_catalog.unnest($4::pg_catalog.text[])) AS wanted (name, privilege)
    JOIN pg_catalog.pg_namespace AS namespace ON namespace.nspname = $2::pg_catalog.text
    JOIN pg_catalog.pg_class AS class
        ON class.relnamespace = namespace.oid AND class.relname = wanted.name AND class.relkind IN ('r', 'p')
), lacking (place, kind, object, privilege) AS (
    SELECT 0, 'schema', pg_catalog.quote_ident(namespace.nspname), needed.privilege
    FROM pg_catalog.pg_namespace AS namespace
    CROSS JOIN (VALUES ('USAGE'), ('CREATE')) AS needed (privilege)
    -- A schema of Sexton's making passes to the role.
    WHERE (namespace.nspname = $5::pg_catalog.text AND NOT EXISTS (SELECT FROM "sexton".objects WHERE objects.kind = 'schema')
        OR needed.privilege = 'USAGE' AND namespace.nspname = $2 AND EXISTS (SELECT FROM wanted))
      AND NOT pg_catalog.has_schema_privilege($1::pg_catalog.name, namespace.oid, needed.privilege)
    UNION
    SELECT 1, 'table', pg_catalog.format('%I.%I', wanted.nspname, wanted.relname), wanted.privilege
    FROM wanted
    WHERE NOT pg_catalog.has_table_privilege($1::pg_catalog.name, wanted.oid, wanted.privilege)
    UNION
    -- The tombstones' own is an identity column's, for which no role needs a right.
    SELECT 2, 'sequence', pg_catalog.format('%I.%I', namespace.nspname, sequence.relname), needed.privilege
    FROM wanted
    JOIN pg_catalog.pg_depend AS depend
        ON depend.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass AND depend.refobjid = wanted.oid
        AND depend.classid = 'pg_catalog.pg_class'::pg_catalog.regclass AND depend.deptype IN ('a', 'i')
    JOIN pg_catalog.pg_class AS sequence ON sequence.oid = depend.objid AND sequence.relkind = 'S'
    JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = sequence.relnamespace
    CROSS JOIN (VALUES ('USAGE'), ('SELECT'), ('UPDATE')) AS needed (privilege)
    WHERE wanted.privilege = 'INSERT' AND wanted.relname <> 'loose_foreign_keys_deleted_records'
      AND NOT pg_catalog.has_sequence_privilege($1::pg_catalog.name, sequence.oid, needed.privilege)
)
SELECT lacking.kind, lacking.object, pg_catalog.string_agg(lacking.privilege, ', ' ORDER BY lacking.privilege)
FROM lacking
GROUP BY lacking.place, lacking.kind, lacking.object
ORDER BY lacking.place, lacking.object;
