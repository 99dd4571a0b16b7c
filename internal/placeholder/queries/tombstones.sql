-- Returns the tables, as tombstones name them, whose deleted rows also delete rows of the
-- tables $1, $2, at any depth: by a loose foreign key from child ($3, $4) to parent ($5,
-- $6), or by a native one with CASCADE. Foreign keys to users are left out, because they
-- are the references themselves.
WITH RECURSIVE edge (child, parent) AS (
    SELECT pg_catalog.format('%I.%I', loose.child_schema, loose.child), pg_catalog.format('%I.%I', loose.parent_schema, loose.parent)
    FROM unnest($3::pg_catalog.text[], $4::pg_catalog.text[], $5::pg_catalog.text[], $6::pg_catalog.text[])
        AS loose (child_schema, child, parent_schema, parent)
    UNION ALL
    SELECT pg_catalog.format('%I.%I', child_schema.nspname, child.relname), pg_catalog.format('%I.%I', parent_schema.nspname, parent.relname)
    FROM pg_catalog.pg_constraint AS native
    JOIN pg_catalog.pg_class AS child ON child.oid = native.conrelid
    JOIN pg_catalog.pg_namespace AS child_schema ON child_schema.oid = child.relnamespace
    JOIN pg_catalog.pg_class AS parent ON parent.oid = native.confrelid
    JOIN pg_catalog.pg_namespace AS parent_schema ON parent_schema.oid = parent.relnamespace
    WHERE native.contype = 'f' AND native.confdeltype = 'c' AND native.confrelid <> pg_catalog.to_regclass('"public".users')
), above (name) AS (
    SELECT pg_catalog.format('%I.%I', referring.schema, referring.name) COLLATE pg_catalog."C"
    FROM unnest($1::pg_catalog.text[], $2::pg_catalog.text[]) AS referring (schema, name)
    UNION
    SELECT edge.parent COLLATE pg_catalog."C" FROM above JOIN edge ON edge.child = above.name
)
SELECT above.name FROM above ORDER BY above.name
