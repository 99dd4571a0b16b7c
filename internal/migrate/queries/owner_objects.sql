-- Returns statements that make the role $1 the owner of everything in the schema sexton,
-- the schema first.
WITH owner AS (
    SELECT role.oid FROM pg_catalog.pg_roles AS role WHERE role.rolname = $1::pg_catalog.text
), space AS (
    SELECT namespace.oid, namespace.nspowner FROM pg_catalog.pg_namespace AS namespace WHERE namespace.nspname = 'sexton'
), statement (place, text) AS (
    SELECT 0, pg_catalog.format('ALTER SCHEMA sexton OWNER TO %I', $1) FROM space, owner WHERE space.nspowner <> owner.oid
    UNION ALL
    SELECT 1, pg_catalog.format('ALTER %s sexton.%I OWNER TO %I',
        CASE class.relkind WHEN 'v' THEN 'VIEW' WHEN 'm' THEN 'MATERIALIZED VIEW' WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END, class.relname, $1)
    FROM owner, space
    JOIN pg_catalog.pg_class AS class ON class.relnamespace = space.oid AND class.relkind IN ('r', 'p', 'v', 'm', 'S')
    WHERE class.relowner <> owner.oid
      -- A sequence of a column gets the owner of its table.
      AND (class.relkind <> 'S' OR NOT EXISTS (
          SELECT FROM pg_catalog.pg_depend AS depend
          WHERE depend.classid = 'pg_catalog.pg_class'::pg_catalog.regclass::pg_catalog.oid AND depend.objid = class.oid AND depend.deptype IN ('a', 'i')
            AND depend.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass::pg_catalog.oid
      ))
    UNION ALL
    SELECT 2, pg_catalog.format('ALTER ROUTINE %s OWNER TO %I', proc.oid::pg_catalog.regprocedure, $1)
    FROM owner, space
    JOIN pg_catalog.pg_proc AS proc ON proc.pronamespace = space.oid
    WHERE proc.proowner <> owner.oid
    UNION ALL
    SELECT 3, pg_catalog.format('ALTER TYPE sexton.%I OWNER TO %I', type.typname, $1)
    FROM owner, space
    JOIN pg_catalog.pg_type AS type ON type.typnamespace = space.oid AND type.typtype IN ('d', 'e')
    WHERE type.typowner <> owner.oid
)
SELECT statement.text FROM statement ORDER BY statement.place, statement.text;
