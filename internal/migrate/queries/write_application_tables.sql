-- Records which of the tables $2 the application has in its schema $1. Views are left
-- out, because a view would run its own code with the privileges of the functions' owner.
WITH present AS (
    SELECT class.relname::pg_catalog.text AS name, class.oid::pg_catalog.regclass AS relation
    FROM pg_catalog.pg_class AS class
    JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = class.relnamespace AND namespace.nspname = $1::pg_catalog.text
    WHERE class.relname = ANY ($2::pg_catalog.text[]) AND class.relkind IN ('r', 'p')
), deleted AS (
    DELETE FROM "sexton".application_tables AS known
    WHERE NOT EXISTS (SELECT FROM present WHERE present.name = known.name)
)
INSERT INTO "sexton".application_tables AS known (name, relation)
SELECT present.name, present.relation FROM present
ON CONFLICT (name) DO UPDATE SET relation = excluded.relation
WHERE known.relation <> excluded.relation;
