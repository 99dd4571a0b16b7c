-- Returns sets with the sets that caused them. A set of rows that the application deleted has none.
SELECT kept.id, coalesce(kept.origins, '{}') AS origins
FROM "sexton".undo AS kept
WHERE kept.id OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.int8[]) AND NOT coalesce(kept.origins OPERATOR(pg_catalog.@>) ARRAY[kept.id], false)
