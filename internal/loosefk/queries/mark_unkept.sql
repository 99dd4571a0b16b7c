-- Marks the deletions $1 as incomplete, unless they already are. The number of rows that
-- were not kept is unknown, so left_out is 1.
INSERT INTO "sexton".undo (id, number, layout, rows, left_out, origins, via)
SELECT pg_catalog.nextval('"sexton".undo_ids'), pg_catalog.nextval('"sexton".undo_ids'), parent.layout, 0, 1, ARRAY[origin.id], '{}'
FROM pg_catalog.unnest($1::bigint[]) AS origin (id)
CROSS JOIN LATERAL (
    SELECT known.layout
    FROM "sexton".undo AS known
    WHERE known.id = origin.id
    ORDER BY known.number
    LIMIT 1
) AS parent
WHERE origin.id NOT IN (
    SELECT pg_catalog.unnest(marked.origins)
    FROM "sexton".undo AS marked
    WHERE marked.origins && $1 AND marked.rows = 0 AND marked.left_out > 0
)
