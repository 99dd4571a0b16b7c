-- Returns statements that drop River's tables, functions and types.
WITH statement (place, text) AS (
    SELECT 0, 'DROP TABLE ' || pg_catalog.string_agg(class.oid::pg_catalog.regclass::pg_catalog.text, ', ')
    FROM pg_catalog.pg_class AS class
    WHERE class.relnamespace = 'sexton'::pg_catalog.regnamespace AND class.relkind IN ('r', 'p') AND pg_catalog.starts_with(class.relname, 'river_')
    HAVING pg_catalog.count(*) > 0
    UNION ALL
    SELECT 1, 'DROP FUNCTION ' || proc.oid::pg_catalog.regprocedure
    FROM pg_catalog.pg_proc AS proc
    WHERE proc.pronamespace = 'sexton'::pg_catalog.regnamespace AND pg_catalog.starts_with(proc.proname, 'river_')
    UNION ALL
    SELECT 2, 'DROP TYPE ' || type.oid::pg_catalog.regtype
    FROM pg_catalog.pg_type AS type
    WHERE type.typnamespace = 'sexton'::pg_catalog.regnamespace AND type.typtype = 'e' AND pg_catalog.starts_with(type.typname, 'river_')
)
SELECT statement.text FROM statement ORDER BY statement.place;
