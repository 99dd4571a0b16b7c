-- Returns the sets that the sets $1 caused, directly or indirectly, in the order in which they were kept. If $2 is true, it also returns the sets of
-- $1 that no set caused. It also returns the sets of the table $3 with a number above $5 that have deleted rows, or changes of some of the columns $4.
WITH RECURSIVE caused (id) AS (
    SELECT given.id FROM pg_catalog.unnest($1::bigint[]) AS given (id)
    UNION
    SELECT undo.id
    FROM caused
    JOIN "sexton".undo AS undo ON undo.origins OPERATOR(pg_catalog.&&) ARRAY[caused.id]
),
found AS MATERIALIZED (
    SELECT undo.number, undo.id, undo.rows, undo.left_out, undo.c IS NOT NULL AS kept, undo.kept_at, undo.origins, undo.via, undo.keys, undo.fields,
        undo.changed, undo.written, undo.actor, undo.restored, undo.parent, undo.layout
    FROM "sexton".undo AS undo
    JOIN "sexton".undo_layouts AS layout ON layout.id = undo.layout
    WHERE $2::boolean AND undo.id = ANY ($1::bigint[]) AND undo.origins IS NULL
       OR undo.origins OPERATOR(pg_catalog.&&) (SELECT pg_catalog.array_agg(caused.id) FROM caused)
       OR $3::pg_catalog.oid <> 0::pg_catalog.oid AND undo.number > $5::bigint AND undo.c IS NOT NULL
          AND coalesce(undo.changed OPERATOR(pg_catalog.&&) $4::pg_catalog.text[], undo.changed IS NULL)
          AND coalesce(pg_catalog.pg_partition_root(layout.relation)::pg_catalog.oid, layout.relation)
            = coalesce(pg_catalog.pg_partition_root($3::pg_catalog.oid)::pg_catalog.oid, $3::pg_catalog.oid)
),
-- Returns the array types that are read as such. All other arrays are read as arrays of texts: those of dropped types, and those of the application's
-- own types. One of these types may now refuse one value of an array, or the NULL of a forgotten row, and all other values would fail with it. Arrays
-- with another delimiter than a comma cannot be read as arrays of texts. The cast of a few types to text differs from their output, so domains over
-- these types are read as their base types. The CTE reads the types once for all sets and columns.
arrays AS MATERIALIZED (
    SELECT pg_catalog.format('%I.%I', space.nspname, type.typname) AS kept,
        pg_catalog.format('%I.%I', home.nspname, coalesce(base.typname, type.typname)) AS name
    FROM pg_catalog.pg_type AS type
    JOIN pg_catalog.pg_namespace AS space ON space.oid = type.typnamespace
    JOIN pg_catalog.pg_type AS one ON one.oid = type.typelem
    LEFT JOIN pg_catalog.pg_type AS base ON one.typtype = 'd' AND base.oid = CASE one.typoutput
        WHEN 'pg_catalog.bpcharout'::pg_catalog.regproc THEN 'pg_catalog.bpchar[]'::pg_catalog.regtype
        WHEN 'pg_catalog.boolout'::pg_catalog.regproc THEN 'pg_catalog.bool[]'::pg_catalog.regtype
        WHEN 'pg_catalog.box_out'::pg_catalog.regproc THEN 'pg_catalog.box[]'::pg_catalog.regtype
    END
    JOIN pg_catalog.pg_namespace AS home ON home.oid = coalesce(base.typnamespace, type.typnamespace)
    WHERE home.nspname = 'pg_catalog' OR type.typdelim <> ','
),
layouts AS MATERIALIZED (
    SELECT layout.*, ARRAY(
        SELECT coalesce(arrays.name, 'pg_catalog.text[]')
        FROM pg_catalog.unnest(layout.arrays) WITH ORDINALITY AS given (type, place) LEFT JOIN arrays ON arrays.kept = given.type
        ORDER BY given.place
    ) AS readable
    FROM "sexton".undo_layouts AS layout
    WHERE layout.id IN (SELECT found.layout FROM found)
)
SELECT undo.number, undo.id, undo.rows, undo.left_out, undo.kept, undo.kept_at, coalesce(undo.origins, '{}') AS origins,
    coalesce(undo.via, '{}') AS via, coalesce(undo.keys, '{}') AS keys, coalesce(undo.fields, '{}') AS fields, coalesce(undo.changed, '{}') AS changed,
    undo.written, coalesce(undo.actor, '') AS actor, coalesce(undo.restored, '{}') AS restored, layout.id AS layout, layout.relation, layout.name, layout.columns, layout.numbers, layout.types,
    layout.readable AS arrays, layout.terms, layout.key, layout.cascades,
    -- root is read now, because the table may have become a partition after its rows were kept.
    coalesce(undo.parent, 0) AS parent, coalesce(pg_catalog.pg_partition_root(undo.parent)::pg_catalog.oid, 0) AS root
FROM found AS undo
JOIN layouts AS layout ON layout.id = undo.layout
ORDER BY undo.fields IS NOT NULL, undo.via IS NOT NULL, undo.kept_at, undo.number
