-- Returns privileges of the role $1 on tables of the application's schema $2 and on the
-- application's rules. $3 has the names of the tables and $4, in the same order, the
-- required privileges. If $5 is true, the query returns the required privileges that the
-- role has, and otherwise the required privileges that it lacks. The columns are kind,
-- object and privileges. Views are ignored, because a view would run its own code with
-- the privileges of the role.
WITH wanted AS (
    SELECT class.oid, class.relname, namespace.nspname, wanted.privilege
    FROM ROWS FROM (pg_catalog.unnest($3::pg_catalog.text[]), pg_catalog.unnest($4::pg_catalog.text[])) AS wanted (name, privilege)
    JOIN pg_catalog.pg_namespace AS namespace ON namespace.nspname = $2::pg_catalog.text
    JOIN pg_catalog.pg_class AS class
        ON class.relnamespace = namespace.oid AND class.relname = wanted.name AND class.relkind IN ('r', 'p')
), rule AS (
    -- A rule is a function of the application whose qualified name is in the body of one
    -- of Sexton's functions.
    SELECT function.oid, namespace.oid AS schema, namespace.nspname, function.proname, pg_catalog.oidvectortypes(function.proargtypes) AS arguments
    FROM pg_catalog.pg_proc AS function
    JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = function.pronamespace
    WHERE namespace.nspname NOT IN ('sexton', 'pg_catalog', 'information_schema')
      AND function.pronargs = 2 AND function.prorettype = 'text'::pg_catalog.regtype::pg_catalog.oid
      AND EXISTS (
          SELECT
          FROM pg_catalog.pg_proc AS door
          WHERE door.pronamespace = pg_catalog.to_regnamespace('sexton')::pg_catalog.oid
            AND pg_catalog.strpos(door.prosrc, pg_catalog.quote_literal(pg_catalog.format('"%s"."%s"(%s)',
                pg_catalog.replace(namespace.nspname, '"', '""'), pg_catalog.replace(function.proname, '"', '""'),
                pg_catalog.oidvectortypes(function.proargtypes)))) > 0
      )
), needed (place, kind, object, privilege) AS (
    SELECT 0, 'schema', pg_catalog.quote_ident(namespace.nspname), 'USAGE'
    FROM pg_catalog.pg_namespace AS namespace
    WHERE namespace.nspname = $2 AND EXISTS (SELECT FROM wanted)
      AND pg_catalog.has_schema_privilege($1::pg_catalog.name, namespace.oid, 'USAGE') = $5
    UNION
    SELECT 1, 'table', pg_catalog.format('%I.%I', wanted.nspname, wanted.relname), wanted.privilege
    FROM wanted
    WHERE pg_catalog.has_table_privilege($1::pg_catalog.name, wanted.oid, wanted.privilege) = $5
    UNION
    -- The sequence of the tombstones belongs to an identity column, so no role needs a
    -- privilege on it.
    SELECT 2, 'sequence', pg_catalog.format('%I.%I', namespace.nspname, sequence.relname), part.privilege
    FROM wanted
    JOIN pg_catalog.pg_depend AS depend
        ON depend.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass::pg_catalog.oid AND depend.refobjid = wanted.oid
        AND depend.classid = 'pg_catalog.pg_class'::pg_catalog.regclass::pg_catalog.oid AND depend.deptype IN ('a', 'i')
    JOIN pg_catalog.pg_class AS sequence ON sequence.oid = depend.objid AND sequence.relkind = 'S'
    JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = sequence.relnamespace
    CROSS JOIN (VALUES ('USAGE'), ('SELECT'), ('UPDATE')) AS part (privilege)
    WHERE wanted.privilege = 'INSERT' AND wanted.relname <> 'loose_foreign_keys_deleted_records'
      AND pg_catalog.has_sequence_privilege($1::pg_catalog.name, sequence.oid, part.privilege) = $5
    UNION
    SELECT 0, 'schema', pg_catalog.quote_ident(rule.nspname), 'USAGE'
    FROM rule
    WHERE pg_catalog.has_schema_privilege($1::pg_catalog.name, rule.schema, 'USAGE') = $5
    UNION
    SELECT 3, 'function', pg_catalog.format('%I.%I(%s)', rule.nspname, rule.proname, rule.arguments), 'EXECUTE'
    FROM rule
    WHERE pg_catalog.has_function_privilege($1::pg_catalog.name, rule.oid, 'EXECUTE') = $5
)
SELECT needed.kind, needed.object, pg_catalog.string_agg(needed.privilege, ', ' ORDER BY needed.privilege)
FROM needed
GROUP BY needed.place, needed.kind, needed.object
ORDER BY needed.place, needed.object;
