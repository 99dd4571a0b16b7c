-- Statements that hand Sexton's objects in the schema $1 over to the role $2, the schema first. Objects of a third role stay: the
-- application may have replaced a function of the registry by its own.
WITH new AS (
    SELECT role.oid FROM pg_catalog.pg_roles AS role WHERE role.rolname = $2::pg_catalog.text
), space AS (
    SELECT namespace.oid, namespace.nspowner FROM pg_catalog.pg_namespace AS namespace WHERE namespace.nspname = $1::pg_catalog.text
), former AS (
    SELECT class.relowner AS oid
    FROM space
    JOIN pg_catalog.pg_class AS class ON class.relnamespace = space.oid AND class.relname = 'objects'
    UNION
    SELECT role.oid FROM pg_catalog.pg_roles AS role WHERE role.rolname = current_user
), registered AS (
    SELECT object.kind, object.identity, pg_catalog.starts_with(object.kind, 'river') AS river FROM "sexton".objects AS object
), statement (place, text) AS (
    SELECT 0, pg_catalog.format('ALTER SCHEMA %I OWNER TO %I', $1, $2)
    FROM space
    WHERE space.nspowner IN (SELECT former.oid FROM former)
      AND EXISTS (SELECT FROM registered WHERE registered.kind = 'schema')
      AND space.nspowner <> (SELECT new.oid FROM new)
    UNION ALL
    SELECT 1, pg_catalog.format('ALTER TABLE %I.%I OWNER TO %I', $1, class.relname, $2)
    FROM space
    JOIN pg_catalog.pg_class AS class ON class.relnamespace = space.oid AND class.relkind IN ('r', 'p', 'v')
    WHERE class.relowner IN (SELECT former.oid FROM former)
      AND class.relowner <> (SELECT new.oid FROM new)
      AND EXISTS (
          SELECT FROM registered
          WHERE registered.river AND pg_catalog.starts_with(class.relname::pg_catalog.text, 'river_')
             OR registered.kind IN ('table', 'view') AND pg_catalog.to_regclass(registered.identity) = class.oid
      )
    UNION ALL
    SELECT 2, pg_catalog.format('ALTER FUNCTION %s OWNER TO %I', proc.oid::pg_catalog.regprocedure, $2)
    FROM space
    JOIN pg_catalog.pg_proc AS proc ON proc.pronamespace = space.oid
    WHERE proc.proowner IN (SELECT former.oid FROM former)
      AND proc.proowner <> (SELECT new.oid FROM new)
      AND EXISTS (
          SELECT FROM registered
          WHERE registered.river AND pg_catalog.starts_with(proc.proname::pg_catalog.text, 'river_')
             OR registered.kind = 'function' AND pg_catalog.to_regprocedure(registered.identity) = proc.oid
      )
    UNION ALL
    SELECT 3, pg_catalog.format('ALTER TYPE %I.%I OWNER TO %I', $1, type.typname, $2)
    FROM space
    JOIN pg_catalog.pg_type AS type ON type.typnamespace = space.oid AND type.typtype = 'e'
    WHERE type.typowner IN (SELECT former.oid FROM former)
      AND type.typowner <> (SELECT new.oid FROM new)
      AND pg_catalog.starts_with(type.typname::pg_catalog.text, 'river_')
      AND EXISTS (SELECT FROM registered WHERE registered.river)
)
SELECT statement.text FROM statement ORDER BY statement.place, statement.text;
