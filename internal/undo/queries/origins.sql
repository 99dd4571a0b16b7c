-- Returns the sets among $1 with the IDs of the sets that caused them. Rows that the application deleted have no cause. Sets that triggers kept during
-- a batch are left out, because the batch's own set has the same ID.
SELECT kept.id, coalesce(kept.origins, '{}') AS origins
FROM "sexton".undo AS kept
WHERE kept.id OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.int8[]) AND NOT coalesce(kept.origins OPERATOR(pg_catalog.@>) ARRAY[kept.id], false)
