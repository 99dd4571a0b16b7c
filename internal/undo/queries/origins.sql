-- Returns sets with the sets that caused them, none for a set of parents that a statement of the application deleted.
SELECT kept.id, coalesce(kept.origins, '{}') AS origins
FROM "sexton".undo AS kept
WHERE kept.id OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.int8[]) AND NOT coalesce(kept.origins OPERATOR(pg_catalog.@>) ARRAY[kept.id], false)
