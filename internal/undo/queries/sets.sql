-- The sets that are one of $1 or that one of $1 caused, in the order in which they were kept.
SELECT undo.number, undo.id, undo.rows, undo.left_out, undo.c IS NOT NULL AS kept, undo.kept_at, coalesce(undo.origins, '{}') AS origins,
    coalesce(undo.via, '{}') AS via, coalesce(undo.keys, '{}') AS keys, coalesce(undo.fields, '{}') AS fields, coalesce(undo.changed, '{}') AS changed,
    undo.written, coalesce(undo.actor, '') AS actor, layout.id AS layout, layout.relation, layout.name, layout.columns, layout.numbers, layout.types,
    layout.arrays, layout.terms, layout.key
FROM "sexton".undo AS undo
JOIN "sexton".undo_layouts AS layout ON layout.id = undo.layout
WHERE CASE WHEN $2::boolean THEN undo.id = ANY ($1::bigint[]) AND undo.origins IS NULL ELSE undo.origins OPERATOR(pg_catalog.&&) $1::bigint[] END
ORDER BY undo.fields IS NOT NULL, undo.kept_at, undo.number
